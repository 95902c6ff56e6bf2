#include "smp/tensorfiles/pretrained/tokenizer_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "smp/plan/base/errors.h"
#include "smp/plan/files/text_file.h"
#include "smp/plan/text/json.h"
#include "smp/plan/text/json_depth.h"
#include "smp/tensorfiles/pretrained/model_folder.h"

namespace smp::pretrained {
namespace {

namespace fs = std::filesystem;

constexpr const char* kKey = "training.tokenizer";
constexpr const char* kTokenizerJson = "tokenizer.json";
// Files that turn text into tokens; a tokenizer has one of them.
constexpr std::array kVocabularyFiles = {kTokenizerJson, "vocab.json",
                                         "vocab.txt",    "tokenizer.model",
                                         "spiece.model", "sentencepiece.bpe.model",
                                         "tekken.json"};

// An empty object where there is no such file, or it holds none. Sorted by key: a vocabulary has a
// hundred thousand, among which an object in the order of the file looks for each.
text::Json object_in(const std::string& path) {
  std::error_code none;
  if (!fs::is_regular_file(path, none)) return text::Json::object();
  const std::string text = files::read_text_file(path, "file of training.tokenizer");
  text::Json found =
      text::nests_too_deep(text) ? text::Json() : text::Json::parse(text, nullptr, false);
  return found.is_object() ? found : text::Json::object();
}

// A token is a text, or an object with its content.
std::string text_of_token(const text::Json& token) {
  const text::Json* text = &token;
  if (token.is_object() && token.contains("content")) text = &token.at("content");
  return text->is_string() ? text->get<std::string>() : "";
}

int64_t id_of(const text::Json& id, const std::string& path) {
  if (!id.is_number_integer() || id.get<int64_t>() < 0)
    throw ConfigError(fmt::format("{}: {}: {} is not a token id", kKey, path, id.dump()));
  return id.get<int64_t>();
}

// Ids of the added tokens of tokenizer.json, by their text.
std::map<std::string, int64_t> added_tokens(const text::Json& tokenizer, const std::string& path) {
  std::map<std::string, int64_t> ids;
  if (!tokenizer.contains("added_tokens") || !tokenizer.at("added_tokens").is_array()) return ids;
  for (const text::Json& added : tokenizer.at("added_tokens")) {
    if (added.is_object() && added.contains("id"))
      ids[text_of_token(added)] = id_of(added.at("id"), path);
  }
  return ids;
}

}  // namespace

std::map<std::string, int64_t> special_token_ids(const std::string& folder) {
  const text::Json config = object_in(folder + "/tokenizer_config.json");
  const std::string path = fmt::format("{}/{}", folder, kTokenizerJson);
  const std::map<std::string, int64_t> added = added_tokens(object_in(path), path);
  std::map<std::string, int64_t> ids;
  for (const char* name : kSpecialTokens) {
    const std::string text = config.contains(name) ? text_of_token(config.at(name)) : "";
    const auto found = added.find(text);
    if (!text.empty() && found != added.end()) ids[name] = found->second;
  }
  return ids;
}

std::optional<int64_t> tokenizer_vocabulary(const std::string& folder) {
  const std::string path = fmt::format("{}/{}", folder, kTokenizerJson);
  std::error_code none;
  if (!fs::is_regular_file(path, none)) return std::nullopt;
  const text::Json json = object_in(path);
  if (!json.contains("model") || !json.at("model").is_object() ||
      !json.at("model").contains("vocab")) {
    throw ConfigError(
        fmt::format("{}: {}: not a Hugging Face tokenizer: model.vocab is missing", kKey, path));
  }
  int64_t largest = -1;
  const text::Json& vocabulary = json.at("model").at("vocab");
  if (vocabulary.is_array()) largest = static_cast<int64_t>(vocabulary.size()) - 1;  // of Unigram
  if (vocabulary.is_object()) {
    for (const text::Json& id : vocabulary) largest = std::max(largest, id_of(id, path));
  }
  for (const auto& [text, id] : added_tokens(json, path)) largest = std::max(largest, id);
  return largest + 1;
}

void check_tokenizer(const JobSpec& job, std::span<const data::TokenManifest> data) {
  const std::string& folder = job.training.tokenizer;
  if (folder.empty()) return;
  std::error_code none;
  if (!fs::is_directory(folder, none))
    throw ConfigError(fmt::format("{}: {} is not a folder", kKey, folder));
  const std::vector<std::string> found = files_to_keep(folder, kKey);
  if (std::ranges::find_first_of(found, kVocabularyFiles) == found.end()) {
    throw ConfigError(
        fmt::format("{}: {} has no tokenizer; expected tokenizer.json, tokenizer.model, vocab.json "
                    "or vocab.txt",
                    kKey, folder));
  }
  const std::optional<int64_t> vocabulary = tokenizer_vocabulary(folder);
  if (!vocabulary) return;
  if (*vocabulary > job.model.vocab_size) {
    throw ConfigError(
        fmt::format("{}: {} has {} tokens, but model.vocab_size is {}: set model.vocab_size to at "
                    "least the tokenizer's number",
                    kKey, folder, *vocabulary, job.model.vocab_size));
  }
  for (const data::TokenManifest& manifest : data) {
    if (manifest.vocab_size == *vocabulary) continue;
    throw ConfigError(fmt::format(
        "{}: {} has {} tokens, but the data were made with {}, which has {} ({}): name the "
        "tokenizer that made the data",
        kKey, folder, *vocabulary, manifest.tokenizer, manifest.vocab_size, manifest.path));
  }
}

}  // namespace smp::pretrained
