#pragma once

#include <string>
#include <vector>

// What lies beside the weights that a run starts from and makes them a model that others can use:
// tokenizer, settings of generation, token ids of config.json. No torch; any thread.
namespace smp {

// Which of these files are in the folder. Throws ConfigError for one that is a Git LFS pointer.
std::vector<std::string> files_to_keep(const std::string& folder);

// Copies them from `folder` to the saved weights in `dir`, and the ids from its config.json to
// theirs. Returns what a user must hear where the folder cannot be read any more, or "".
std::string keep_files(const std::string& folder, const std::string& dir);

}  // namespace smp
