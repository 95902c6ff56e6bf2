#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "smp/plan/data/open_files.h"
#include "smp/plan/data/token_file_parts.h"

// Megatron-LM's index (megatron/core/datasets/indexed_dataset.py): 9 bytes of magic, version, code
// of the type, S sequences, D = documents + 1; then the sequences' lengths in tokens (32 bits),
// their first bytes in the .bin (64), and the sequence at which each document begins (64). Nothing
// of it is kept: its arrays, which begin at no multiple of their size, are read where they are
// asked for. Any thread.
namespace smp::data {

// Throws ConfigError if the index is torn, of another kind, or does not fit the .bin `tokens`:
// sizes exactly, pointers at places spread over the index.
MegatronIndex open_megatron_index(const std::string& path, size_t tokens, const std::string& key,
                                  OpenFiles& files);

// First tokens of documents [first, first + count), count >= 1; that behind the last document is
// the number of tokens. Throws std::runtime_error, with path and number, for an impossible value.
std::vector<int64_t> document_begins(const MegatronIndex& index, int64_t first, int64_t count,
                                     int64_t tokens, const OpenFiles& files);

// The document of token `token`.
int64_t document_of_token(const MegatronIndex& index, int64_t token, int64_t tokens,
                          const OpenFiles& files);

}  // namespace smp::data
