#include "token_types.h"

namespace smp {
namespace {

template <typename T>
void widen(const void* from, int64_t count, int64_t* to) {
  const auto* bytes = static_cast<const char*>(from);
  for (int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, bytes + i * static_cast<int64_t>(sizeof value), sizeof value);
    to[i] = static_cast<int64_t>(value);
  }
}

}  // namespace

int64_t bytes_of(TokenType type) {
  constexpr int64_t kBytes[] = {1, 1, 2, 2, 4, 4, 8, 8};
  return kBytes[static_cast<size_t>(type)];
}

std::string_view name_of(TokenType type) {
  constexpr std::string_view kNames[] = {"uint8",  "int8",  "uint16", "int16",
                                         "uint32", "int32", "uint64", "int64"};
  return kNames[static_cast<size_t>(type)];
}

void widen_tokens(TokenType type, const void* from, int64_t count, int64_t* to) {
  switch (type) {
    case TokenType::kU8: return widen<uint8_t>(from, count, to);
    case TokenType::kI8: return widen<int8_t>(from, count, to);
    case TokenType::kU16: return widen<uint16_t>(from, count, to);
    case TokenType::kI16: return widen<int16_t>(from, count, to);
    case TokenType::kU32: return widen<uint32_t>(from, count, to);
    case TokenType::kI32: return widen<int32_t>(from, count, to);
    case TokenType::kU64: return widen<uint64_t>(from, count, to);
    case TokenType::kI64: return widen<int64_t>(from, count, to);
  }
}

bool all_within(const int64_t* tokens, int64_t count, int64_t below) {
  // Without a branch, so that it becomes vector code: the sign of either term says that it is not.
  uint64_t bad = 0;
  const auto last = static_cast<uint64_t>(below - 1);
  for (int64_t i = 0; i < count; ++i) {
    const auto token = static_cast<uint64_t>(tokens[i]);
    bad |= token | (last - token);
  }
  return bad >> 63 == 0;
}

}  // namespace smp
