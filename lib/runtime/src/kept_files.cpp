#include "kept_files.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "json_depth.h"
#include "smp/plan/errors.h"
#include "smp/plan/git_lfs.h"
#include "smp/plan/json.h"
#include "smp/runtime/atomic_file.h"

namespace smp {
namespace {

namespace fs = std::filesystem;

// Names: transformers/tokenization_utils_base.py, and the tokenizers' own VOCAB_FILES_NAMES.
constexpr std::array kFiles = {"tokenizer.json",
                               "tokenizer_config.json",
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
                               "chat_template.json",
                               "generation_config.json"};
constexpr std::array kTokenIds = {"bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id",
                                  "unk_token_id"};

std::string kept_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + ": cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

OrderedJson object_of(const std::string& text) {
  return nests_too_deep(text) ? OrderedJson() : OrderedJson::parse(text, nullptr, false);
}

}  // namespace

std::vector<std::string> files_to_keep(const std::string& folder) {
  std::vector<std::string> found;
  for (const char* name : kFiles) {
    const std::string path = fmt::format("{}/{}", folder, name);
    std::error_code none;
    if (!fs::is_regular_file(path, none)) continue;
    if (const std::string complaint = git_lfs_complaint_of(path); !complaint.empty()) {
      throw ConfigError(fmt::format("training.init_from: {}: {}", path, complaint));
    }
    found.emplace_back(name);
  }
  return found;
}

std::string keep_files(const std::string& folder, const std::string& dir) {
  try {
    const OrderedJson theirs = object_of(kept_text(folder + "/config.json"));
    OrderedJson ours = object_of(kept_text(dir + "/config.json"));
    for (const char* key : kTokenIds) {
      if (theirs.is_object() && theirs.contains(key)) ours[key] = theirs.at(key);
    }
    write_file_atomically(dir + "/config.json", ours.dump(2) + "\n");
    for (const std::string& name : files_to_keep(folder)) {
      write_file_atomically(dir + "/" + name, kept_text(folder + "/" + name));
    }
    return "";
  } catch (const std::exception& error) {
    return fmt::format(
        "note: {} holds the weights, but not all of the tokenizer and the settings of {}: {}\n",
        dir, folder, error.what());
  }
}

}  // namespace smp
