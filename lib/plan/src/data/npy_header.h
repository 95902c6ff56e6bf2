#pragma once

#include <cstdint>
#include <string>

#include "smp/plan/data/open_files.h"
#include "smp/plan/data/token_file_parts.h"

namespace smp::data {

struct NpyHeader {
  int64_t begin = 0;  // byte of the first element
  TokenType type = TokenType::kU16;
  int64_t elements = 0;
};

// The header of a NumPy file of one dimension of whole numbers, versions 1 to 3
// (numpy/lib/format.py). Throws ConfigError for other types, byte orders and shapes, and if the
// file's size does not fit.
NpyHeader read_npy_header(size_t file, const std::string& key, const OpenFiles& files);

}  // namespace smp::data
