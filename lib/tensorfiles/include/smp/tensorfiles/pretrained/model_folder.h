#pragma once

#include <string>
#include <vector>

// The files of a Hugging Face folder beside its weights (kept_files.h). No torch; any thread.
namespace smp::pretrained {

inline constexpr const char* kGenerationConfig = "generation_config.json";

// Names of the tokenizer and generation files that are in the folder. Throws ConfigError, which
// starts with `key`, for one that is a Git LFS pointer.
std::vector<std::string> files_to_keep(const std::string& folder, const std::string& key);

}  // namespace smp::pretrained
