#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "smp/plan/data/token_file.h"
#include "smp/plan/job_spec.h"

// The tokenizer that lies in a folder of Hugging Face. The engine reads token ids and never text;
// the tokenizer travels with the weights, so that transformers load both from one folder. No torch;
// any thread.
namespace smp {

// Throws ConfigError, "training.tokenizer: ...", for a folder without a tokenizer, for files of it
// that cannot be read, for a tokenizer with more tokens than the model has rows, and for one whose
// vocabulary is not that of the tokenizer that made the data. Nothing where the job names no
// folder.
void check_tokenizer(const JobSpec& job, std::span<const TokenManifest> data);

// The largest id of FOLDER's tokenizer.json + 1; nothing where the tokenizer is of another kind
// (tokenizer.model, vocab.json). Throws ConfigError as check_tokenizer does.
std::optional<int64_t> tokenizer_vocabulary(const std::string& folder);

}  // namespace smp
