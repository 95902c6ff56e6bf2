#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "smp/plan/data/token_file.h"
#include "smp/plan/spec/job_spec.h"

// The tokenizer that lies in a folder of Hugging Face. The engine reads token ids and never text;
// the tokenizer travels with the weights, so that transformers load both from one folder. No torch;
// any thread.
namespace smp::huggingface {

// Throws ConfigError, "training.tokenizer: ...", for a folder without a tokenizer, for files of it
// that cannot be read, for a tokenizer with more tokens than the model has rows, and for one whose
// vocabulary is not that of the tokenizer that made the data. Nothing where the job names no
// folder.
void check_tokenizer(const JobSpec& job, std::span<const data::TokenManifest> data);

// Special tokens by their names in tokenizer_config.json.
inline constexpr std::array<const char*, 5> kSpecialTokens = {"bos_token", "eos_token", "pad_token",
                                                              "sep_token", "unk_token"};

// Those that tokenizer_config.json gives, by name, with their ids in tokenizer.json. Throws
// ConfigError as check_tokenizer does.
std::map<std::string, int64_t> special_token_ids(const std::string& folder);

// The largest id of FOLDER's tokenizer.json + 1; nothing where the tokenizer is of another kind
// (tokenizer.model, vocab.json). Throws ConfigError as check_tokenizer does.
std::optional<int64_t> tokenizer_vocabulary(const std::string& folder);

}  // namespace smp::huggingface
