#pragma once

#include <cstdint>
#include <cstring>

#include "smp/plan/data/token_file.h"

namespace smp {

// Little-endian integers of a file, wherever they begin. The machines we run on are little-endian.
template <typename T>
T loaded(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Tokens as 64 bits: those below 0 stay below 0, and of 64 unsigned bits the largest become
// negative.
void widen_tokens(TokenType type, const void* from, int64_t count, int64_t* to);

// Whether all lie within [0, below).
bool all_within(const int64_t* tokens, int64_t count, int64_t below);

}  // namespace smp
