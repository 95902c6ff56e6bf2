#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "smp/plan/data/token_file_parts.h"

namespace smp::data {

// Little-endian integers of a file, wherever they begin. The machines we run on are little-endian.
template <typename T>
T loaded(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Tokens as 64 bits. Negative ones stay negative, and the largest of 64 unsigned bits become
// negative.
void widen_tokens(TokenType type, const void* from, int64_t count, int64_t* to);

// Whether all lie within [0, below).
bool all_within(const int64_t* tokens, int64_t count, int64_t below);

// Adds the positions, from 0, of a file's tokens that equal `token`, in order.
void find_token(TokenType type, const void* from, int64_t count, int64_t token,
                std::vector<int64_t>& places);

// Whether tokens count in the loss, from a file's bytes 0 and 1, or from its labels: the token
// itself, or -100 if it does not count. Returns how many of the first values are valid.
int64_t counts_of_bits(const void* from, int64_t count, uint8_t* to);
int64_t counts_of_labels(TokenType type, const void* from, const int64_t* tokens, int64_t count,
                         uint8_t* to);

}  // namespace smp::data
