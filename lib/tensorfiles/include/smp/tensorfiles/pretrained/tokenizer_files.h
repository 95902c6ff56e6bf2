#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "smp/plan/data/token_file.h"
#include "smp/plan/spec/job_spec.h"

// The tokenizer in a Hugging Face folder. The engine reads token ids and never text. The tokenizer
// is saved with the weights, so that transformers loads both from one folder. No torch; any thread.
namespace smp::pretrained {

// Checks the folder of training.tokenizer, if the job names one. Throws ConfigError,
// "training.tokenizer: ...", if it holds no tokenizer, a file cannot be read, the tokenizer has
// more tokens than the model has rows, or the data were made with another vocabulary.
void check_tokenizer(const JobSpec& job, std::span<const data::TokenManifest> data);

// Special tokens by their names in tokenizer_config.json.
inline constexpr std::array<const char*, 5> kSpecialTokens = {"bos_token", "eos_token", "pad_token",
                                                              "sep_token", "unk_token"};

// The special tokens of tokenizer_config.json, by name, with their ids in tokenizer.json. Throws
// ConfigError as check_tokenizer() does.
std::map<std::string, int64_t> special_token_ids(const std::string& folder);

// The largest id of the folder's tokenizer.json + 1; nothing for a tokenizer of another kind
// (tokenizer.model, vocab.json). Throws ConfigError as check_tokenizer() does.
std::optional<int64_t> tokenizer_vocabulary(const std::string& folder);

}  // namespace smp::pretrained
