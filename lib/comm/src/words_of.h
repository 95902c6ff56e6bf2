#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

// Stores a text as words of 8 characters; zeros fill up the last one. No word is assembled in
// memory: a load that follows smaller stores to its bytes waits until they leave the CPU's store
// buffer.
namespace smp::comm {

static_assert(std::endian::native == std::endian::little, "the first character is the lowest byte");

inline uint64_t word_at(std::string_view text, size_t at) {
  uint64_t word;
  memcpy(&word, text.data() + at, sizeof(word));
  return word;
}

inline uint64_t last_word(std::string_view text) {
  const size_t rest = text.size() % sizeof(uint64_t);
  if (rest == 0) return 0;
  if (text.size() > sizeof(uint64_t))
    return word_at(text, text.size() - sizeof(uint64_t)) >> (8 * (sizeof(uint64_t) - rest));
  uint64_t word = 0;
  for (size_t i = rest; i-- > 0;) word = word << 8 | uint8_t(text[i]);
  return word;
}

// Stores `text` and the zero that ends it; the words behind it keep their values.
inline void store_words(std::atomic<uint64_t>* to, std::string_view text, std::memory_order order) {
  const size_t whole = text.size() / sizeof(uint64_t);
  for (size_t i = 0; i < whole; ++i) to[i].store(word_at(text, sizeof(uint64_t) * i), order);
  to[whole].store(last_word(text), order);
}

}  // namespace smp::comm
