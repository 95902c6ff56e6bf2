#pragma once

#include <cstdint>
#include <optional>
#include <string>

// Checks of runs on text whose bytes are its tokens, where the job does not ask for bytes.
namespace smp {
struct JobSpec;
}

namespace smp::data {

// Whether the job is sure to read bytes without asking for them. Files of other formats tell only
// when they are opened.
bool reads_bytes_unsaid(const JobSpec& job);

// Why a run on bytes would mean nothing where the job does not ask for bytes: the vocabulary or the
// weights belong to a tokenizer.
std::optional<std::string> why_bytes_mean_nothing(const JobSpec& job);

// Largest vocabulary of a text read as bytes, with room for a few special tokens and padding.
inline constexpr int64_t kMostByteVocabulary = 512;

inline constexpr const char* kManyTokens =
    "model.vocab_size: above 512 (the engine has no tokenizer and reads text as bytes, which are "
    "256 tokens: give files of tokens, see docs/data.md; or train from scratch with vocab_size: "
    "256; or write training.data.tokens: bytes)";
inline constexpr const char* kKnowTokens =
    "training.init_from: weights that were trained on the tokens of a tokenizer (the engine has no "
    "tokenizer and reads text as bytes: give files of that tokenizer's tokens, see docs/data.md; "
    "for weights that were trained on bytes, write training.data.tokens: bytes)";

}  // namespace smp::data
