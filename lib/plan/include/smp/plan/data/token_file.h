#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "smp/plan/data/open_files.h"
#include "smp/plan/spec/job_spec.h"

// One file of tokens, and the files beside it. Their writer gives the sizes, and each number is
// checked against the others and against the files' sizes. docs/data.md describes the formats.
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

// Opens a file of `format` and the files that belong to it; of megatron, `path` is the .bin. `key`
// is the job's key, for messages. Throws ConfigError, with key, path and numbers, if a file is torn
// or the files are inconsistent, and as OpenFiles does.
TokenFile open_token_file(DataFormat format, const std::string& path, const std::string& key,
                          OpenFiles& files);

// The format that the name and the first bytes of a file show. Nothing for a .bin without index and
// header.
std::optional<DataFormat> format_of_file(const std::string& path);

// The loss mask files beside a file of tokens.
std::vector<std::string> masks_beside(const std::string& path);

// The loss mask of `tokens`. Throws ConfigError if there is none, more than one, or one of another
// length.
TokenMask open_token_mask(const TokenFile& tokens, const std::string& key, OpenFiles& files);

// "corpus" of "corpus.bin" and "corpus.npy", else the path.
std::string without_data_suffix(const std::string& path);

}  // namespace smp::data
