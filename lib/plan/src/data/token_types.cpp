#include "token_types.h"

#include <algorithm>

namespace smp::data {
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

// Whole groups without a match are passed over by a loop without a branch, which becomes vector
// code.
template <typename T>
void find(const void* from, int64_t count, int64_t token, std::vector<int64_t>& places) {
  constexpr int64_t kGroup = 64;
  const auto wanted = static_cast<T>(token);
  if (static_cast<int64_t>(wanted) != token) return;
  const auto* bytes = static_cast<const char*>(from);
  for (int64_t begin = 0; begin < count; begin += kGroup) {
    T values[kGroup];
    const int64_t here = std::min(kGroup, count - begin);
    std::memcpy(values, bytes + begin * static_cast<int64_t>(sizeof(T)),
                static_cast<size_t>(here) * sizeof(T));
    T found = 0;
    if (here == kGroup) {
      for (int64_t i = 0; i < kGroup; ++i) found |= static_cast<T>(values[i] == wanted ? 1 : 0);
      if (found == 0) continue;
    }
    for (int64_t i = 0; i < here; ++i) {
      if (values[i] == wanted) places.push_back(begin + i);
    }
  }
}

template <typename T>
int64_t counts(const void* from, const int64_t* tokens, int64_t count, uint8_t* to) {
  constexpr int64_t kIgnored = -100;  // torch's ignore_index
  const auto* bytes = static_cast<const char*>(from);
  for (int64_t i = 0; i < count; ++i) {
    T read;
    std::memcpy(&read, bytes + i * static_cast<int64_t>(sizeof read), sizeof read);
    const auto value = static_cast<int64_t>(read);
    if (value != kIgnored && value != tokens[i]) return i;
    to[i] = value == kIgnored ? 0 : 1;
  }
  return count;
}

// Calls `work` with a value of the type that tokens of `type` have in a file.
template <typename Work>
auto with_type(TokenType type, const Work& work) {
  switch (type) {
    case TokenType::kU8: return work(uint8_t{});
    case TokenType::kI8: return work(int8_t{});
    case TokenType::kU16: return work(uint16_t{});
    case TokenType::kI16: return work(int16_t{});
    case TokenType::kU32: return work(uint32_t{});
    case TokenType::kI32: return work(int32_t{});
    case TokenType::kU64: return work(uint64_t{});
    case TokenType::kI64: break;
  }
  return work(int64_t{});
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
  with_type(type, [&](auto one) { widen<decltype(one)>(from, count, to); });
}

void find_token(TokenType type, const void* from, int64_t count, int64_t token,
                std::vector<int64_t>& places) {
  with_type(type, [&](auto one) { find<decltype(one)>(from, count, token, places); });
}

int64_t counts_of_labels(TokenType type, const void* from, const int64_t* tokens, int64_t count,
                         uint8_t* to) {
  return with_type(type, [&](auto one) { return counts<decltype(one)>(from, tokens, count, to); });
}

int64_t counts_of_bits(const void* from, int64_t count, uint8_t* to) {
  std::memcpy(to, from, static_cast<size_t>(count));
  uint8_t all = 0;
  for (int64_t i = 0; i < count; ++i) all |= to[i];
  if (all <= 1) return count;
  return std::find_if(to, to + count, [](uint8_t value) { return value > 1; }) - to;
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

}  // namespace smp::data
