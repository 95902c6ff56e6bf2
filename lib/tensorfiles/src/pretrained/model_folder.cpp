#include "smp/tensorfiles/pretrained/model_folder.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>

#include "smp/plan/base/errors.h"
#include "smp/plan/files/git_lfs.h"

namespace smp::pretrained {
namespace {

// Names: transformers/tokenization_utils_base.py, and the tokenizers' own VOCAB_FILES_NAMES.
constexpr std::array kTokenizerFiles = {"tokenizer.json",
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
                                        "chat_template.json"};

}  // namespace

std::vector<std::string> files_to_keep(const std::string& folder, const std::string& key) {
  std::vector<std::string> found;
  const auto look = [&](const char* name) {
    const std::string path = fmt::format("{}/{}", folder, name);
    std::error_code none;
    if (!std::filesystem::is_regular_file(path, none)) return;
    if (const std::string complaint = files::git_lfs_complaint_of(path); !complaint.empty())
      throw ConfigError(fmt::format("{}: {}: {}", key, path, complaint));
    found.emplace_back(name);
  };
  for (const char* name : kTokenizerFiles) look(name);
  look(kGenerationConfig);
  return found;
}

}  // namespace smp::pretrained
