#pragma once

#include <string>

#include "smp/plan/spec/job_spec.h"

// The files beside weights that make them a model that others can use: tokenizer, generation
// settings, token ids of config.json. No torch; any thread.
namespace smp::pretrained {

// Copies them to the saved weights in `dir`. The tokenizer comes from training.tokenizer if the job
// names it, all other files from training.init_from. Token ids of config.json are init_from's;
// those that it lacks are the tokenizer's. Returns a note for the user if a folder cannot be read
// any more, else "".
std::string keep_files(const TrainingSpec& training, const std::string& dir);

}  // namespace smp::pretrained
