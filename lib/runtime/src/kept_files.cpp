#include "kept_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "json_depth.h"
#include "smp/plan/errors.h"
#include "smp/plan/git_lfs.h"
#include "smp/plan/json.h"
#include "smp/runtime/atomic_file.h"
#include "smp/runtime/tokenizer_files.h"

namespace smp {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTokenizerJson = "tokenizer.json";
constexpr const char* kTokenizerConfig = "tokenizer_config.json";
// Names: transformers/tokenization_utils_base.py, and the tokenizers' own VOCAB_FILES_NAMES. One of
// the first is what makes text to tokens; the others say more of it.
constexpr std::array kVocabularyFiles = {kTokenizerJson, "vocab.json",
                                         "vocab.txt",    "tokenizer.model",
                                         "spiece.model", "sentencepiece.bpe.model",
                                         "tekken.json"};
constexpr std::array kTokenizerFiles = {kTokenizerJson,
                                        kTokenizerConfig,
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "vocab.json",
                                        "vocab.txt",
                                        "merges.txt",
                                        "tokenizer.model",
                                        "spiece.model",
                                        "sentencepiece.bpe.model",
                                        "tekken.json",
                                        "chat_template.jinja",
                                        "chat_template.json"};
constexpr const char* kGenerationConfig = "generation_config.json";
constexpr std::array kSpecialTokens = {"bos_token", "eos_token", "pad_token", "sep_token",
                                       "unk_token"};

std::string kept_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + ": cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

OrderedJson object_of(const std::string& text) {
  OrderedJson found =
      nests_too_deep(text) ? OrderedJson() : OrderedJson::parse(text, nullptr, false);
  return found.is_object() ? found : OrderedJson::object();
}

// An empty object where there is no such file.
OrderedJson object_in(const std::string& path) {
  std::error_code none;
  return fs::is_regular_file(path, none) ? object_of(kept_text(path)) : OrderedJson::object();
}

bool is_tokenizers(const std::string& name) { return name != kGenerationConfig; }

// A token is a text, or an object with its content.
std::string text_of_token(const OrderedJson& token) {
  if (token.is_object() && token.contains("content")) return text_of_token(token.at("content"));
  return token.is_string() ? token.get<std::string>() : "";
}

// The special tokens of tokenizer_config.json by their names there, as ids of tokenizer.json.
OrderedJson special_ids(const std::string& folder) {
  const OrderedJson config = object_in(fmt::format("{}/{}", folder, kTokenizerConfig));
  const OrderedJson tokenizer = object_in(fmt::format("{}/{}", folder, kTokenizerJson));
  OrderedJson ids = OrderedJson::object();
  if (!tokenizer.contains("added_tokens") || !tokenizer.at("added_tokens").is_array()) return ids;
  for (const char* name : kSpecialTokens) {
    const std::string wanted = config.contains(name) ? text_of_token(config.at(name)) : "";
    if (wanted.empty()) continue;
    for (const OrderedJson& added : tokenizer.at("added_tokens")) {
      if (added.is_object() && text_of_token(added) == wanted && added.contains("id"))
        ids[fmt::format("{}_id", name)] = added.at("id");
    }
  }
  return ids;
}

void keep_ids(const TrainingSpec& training, const std::string& dir) {
  OrderedJson ours = object_of(kept_text(dir + "/config.json"));
  const OrderedJson said =
      training.tokenizer.empty() ? OrderedJson::object() : special_ids(training.tokenizer);
  const OrderedJson theirs = training.init_from.empty()
                                 ? OrderedJson::object()
                                 : object_of(kept_text(training.init_from + "/config.json"));
  for (const char* name : kSpecialTokens) {
    const std::string key = fmt::format("{}_id", name);
    if (theirs.contains(key))
      ours[key] = theirs.at(key);
    else if (said.contains(key))
      ours[key] = said.at(key);
  }
  write_file_atomically(dir + "/config.json", ours.dump(2) + "\n");
}

int64_t id_of(const OrderedJson& id, const std::string& path) {
  if (!id.is_number_integer() || id.get<int64_t>() < 0)
    throw ConfigError(fmt::format("training.tokenizer: {}: {} is no token's id", path, id.dump()));
  return id.get<int64_t>();
}

}  // namespace

std::vector<std::string> files_to_keep(const std::string& folder, const std::string& key) {
  std::vector<std::string> found;
  const auto look = [&](const char* name) {
    const std::string path = fmt::format("{}/{}", folder, name);
    std::error_code none;
    if (!fs::is_regular_file(path, none)) return;
    if (const std::string complaint = git_lfs_complaint_of(path); !complaint.empty())
      throw ConfigError(fmt::format("{}: {}: {}", key, path, complaint));
    found.emplace_back(name);
  };
  for (const char* name : kTokenizerFiles) look(name);
  look(kGenerationConfig);
  return found;
}

std::string keep_files(const TrainingSpec& training, const std::string& dir) {
  const std::string& origin = training.init_from;
  const std::string& tokenizer = training.tokenizer.empty() ? origin : training.tokenizer;
  if (tokenizer.empty()) return "";
  try {
    keep_ids(training, dir);
    for (const std::string& name : files_to_keep(tokenizer, "training.tokenizer")) {
      if (is_tokenizers(name))
        write_file_atomically(dir + "/" + name, kept_text(tokenizer + "/" + name));
    }
    const std::string generation = fmt::format("{}/{}", origin, kGenerationConfig);
    std::error_code none;
    if (!origin.empty() && fs::is_regular_file(generation, none))
      write_file_atomically(fmt::format("{}/{}", dir, kGenerationConfig), kept_text(generation));
    return "";
  } catch (const std::exception& error) {
    return fmt::format(
        "note: {} holds the weights, but not all of the tokenizer and the settings of {}: {}\n",
        dir, tokenizer == origin || origin.empty() ? tokenizer : tokenizer + " and " + origin,
        error.what());
  }
}

std::optional<int64_t> tokenizer_vocabulary(const std::string& folder) {
  const std::string path = fmt::format("{}/{}", folder, kTokenizerJson);
  std::error_code none;
  if (!fs::is_regular_file(path, none)) return std::nullopt;
  const OrderedJson json = object_of(kept_text(path));
  if (!json.contains("model") || !json.at("model").is_object() ||
      !json.at("model").contains("vocab"))
    throw ConfigError(fmt::format(
        "training.tokenizer: {}: it is no tokenizer of Hugging Face: it has no model.vocab", path));
  int64_t largest = -1;
  const OrderedJson& vocabulary = json.at("model").at("vocab");
  if (vocabulary.is_array()) largest = static_cast<int64_t>(vocabulary.size()) - 1;  // of Unigram
  if (vocabulary.is_object())
    for (const OrderedJson& id : vocabulary) largest = std::max(largest, id_of(id, path));
  if (json.contains("added_tokens") && json.at("added_tokens").is_array())
    for (const OrderedJson& added : json.at("added_tokens"))
      if (added.is_object() && added.contains("id"))
        largest = std::max(largest, id_of(added.at("id"), path));
  return largest + 1;
}

void check_tokenizer(const JobSpec& job, std::span<const TokenManifest> data) {
  const std::string& folder = job.training.tokenizer;
  if (folder.empty()) return;
  std::error_code none;
  if (!fs::is_directory(folder, none))
    throw ConfigError(fmt::format("training.tokenizer: {} is no folder", folder));
  const std::vector<std::string> found = files_to_keep(folder, "training.tokenizer");
  const bool has_vocabulary = std::any_of(
      kVocabularyFiles.begin(), kVocabularyFiles.end(),
      [&](const char* name) { return std::find(found.begin(), found.end(), name) != found.end(); });
  if (!has_vocabulary)
    throw ConfigError(fmt::format(
        "training.tokenizer: {} holds no tokenizer (tokenizer.json, tokenizer.model, vocab.json or "
        "vocab.txt)",
        folder));
  const std::optional<int64_t> vocabulary = tokenizer_vocabulary(folder);
  if (vocabulary && *vocabulary > job.model.vocab_size)
    throw ConfigError(fmt::format(
        "training.tokenizer: {} has {} tokens, and model.vocab_size is {}: give at least as many",
        folder, *vocabulary, job.model.vocab_size));
  for (const TokenManifest& manifest : data) {
    if (vocabulary && manifest.vocab_size != *vocabulary)
      throw ConfigError(fmt::format(
          "training.tokenizer: {} has {} tokens, and the data are of {}, which has {} ({}): give "
          "the tokenizer that made them",
          folder, *vocabulary, manifest.tokenizer, manifest.vocab_size, manifest.path));
  }
}

}  // namespace smp
