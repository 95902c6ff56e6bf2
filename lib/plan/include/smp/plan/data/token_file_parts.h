#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "smp/plan/spec/job_spec.h"

// A file of tokens, and what the files beside it say (token_file.h). Plain data.
namespace smp::data {

enum class TokenType { kU8, kI8, kU16, kI16, kU32, kI32, kU64, kI64 };

int64_t bytes_of(TokenType type);
std::string_view name_of(TokenType type);  // NumPy's: "uint16"

// Megatron-LM's PREFIX.idx. A document is a run of sequences; its tokens lie one behind the other.
struct MegatronIndex {
  size_t file = 0;  // of OpenFiles
  int64_t sequences = 0;
  int64_t documents = 0;
  TokenType type = TokenType::kU16;
};

// PREFIX.smp.json, that smp-data writes beside Megatron's two files.
struct TokenManifest {
  std::string path;
  std::string tokenizer;  // its name
  int64_t vocab_size = 0;
  std::optional<int64_t> end_of_document;
  TokenType type = TokenType::kU16;
  int64_t tokens = 0;
  int64_t documents = 0;
  bool has_mask = false;
  int64_t longest_document = 0;
};

// The loss mask of a file of tokens: one byte 0 or 1 for each token, or labels (the token itself,
// or -100).
struct TokenMask {
  size_t file = 0;    // of OpenFiles
  int64_t begin = 0;  // byte of the first one
  bool is_labels = false;
  TokenType type = TokenType::kU8;
};

struct TokenFile {
  DataFormat format = DataFormat::kText;
  size_t file = 0;    // of OpenFiles
  int64_t begin = 0;  // byte of the first token
  TokenType type = TokenType::kU8;
  int64_t tokens = 0;
  std::optional<MegatronIndex> index = {};
  std::optional<TokenManifest> manifest = {};
  std::optional<TokenMask> mask = {};
};

}  // namespace smp::data
