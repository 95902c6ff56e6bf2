#pragma once

#include <string>
#include <vector>

#include "smp/plan/spec/job_spec.h"

// What lies beside weights and makes them a model that others can use: tokenizer, settings of
// generation, token ids of config.json. No torch; any thread.
namespace smp::huggingface {

// Which of these files are in the folder. Throws ConfigError, which starts with `key`, for one that
// is a Git LFS pointer.
std::vector<std::string> files_to_keep(const std::string& folder, const std::string& key);

// Copies them to the saved weights in `dir`: those of the tokenizer from training.tokenizer if the
// job names it, all others from training.init_from. Token ids of config.json are those of
// init_from's, and those that it does not say are the tokenizer's. Returns what a user must hear
// where a folder cannot be read any more, or "".
std::string keep_files(const TrainingSpec& training, const std::string& dir);

}  // namespace smp::huggingface
