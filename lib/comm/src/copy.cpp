#include "copy.h"

#include <cstring>

#if defined(__x86_64__)
#  include <immintrin.h>
#endif

namespace smp::shm {
namespace {

#if defined(__x86_64__)
constexpr int64_t kLine = 64;

int64_t stream_sse2(std::byte* to, const std::byte* from, int64_t bytes) {
  const int64_t whole = bytes / kLine * kLine;
  for (int64_t at = 0; at < whole; at += kLine) {
    const auto* source = reinterpret_cast<const __m128i*>(from + at);
    auto* target = reinterpret_cast<__m128i*>(to + at);
    const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  return whole;
}

[[gnu::target("avx2")]] int64_t stream_avx2(std::byte* to, const std::byte* from, int64_t bytes) {
  const int64_t whole = bytes / kLine * kLine;
  for (int64_t at = 0; at < whole; at += kLine) {
    const auto* source = reinterpret_cast<const __m256i*>(from + at);
    auto* target = reinterpret_cast<__m256i*>(to + at);
    const __m256i a = _mm256_loadu_si256(source), b = _mm256_loadu_si256(source + 1);
    _mm256_stream_si256(target, a);
    _mm256_stream_si256(target + 1, b);
  }
  return whole;
}

[[gnu::target("avx512f")]] int64_t stream_avx512(std::byte* to, const std::byte* from,
                                                 int64_t bytes) {
  constexpr int64_t kTile = 4 * kLine;
  const int64_t whole = bytes / kTile * kTile;
  for (int64_t at = 0; at < whole; at += kTile) {
    __m512i lines[4];
#  pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) lines[i] = _mm512_loadu_si512(from + at + i * kLine);
#  pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at + i * kLine), lines[i]);
  }
  return whole;
}

#endif

}  // namespace

std::vector<StreamCopy> stream_copies_here() {
  std::vector<StreamCopy> copies;
#if defined(__x86_64__)
  copies.push_back(stream_sse2);
  if (__builtin_cpu_supports("avx2")) copies.push_back(stream_avx2);
  if (__builtin_cpu_supports("avx512f")) copies.push_back(stream_avx512);
#endif
  return copies;
}

void copy_bytes(std::byte* to, const std::byte* from, int64_t bytes, bool stream) {
  if (bytes <= 0 || to == from) return;
#if defined(__x86_64__)
  if (stream) {
    static const StreamCopy stream_lines = stream_copies_here().back();
    const int64_t head = int64_t(-reinterpret_cast<uintptr_t>(to) & uintptr_t(kLine - 1));
    if (head < bytes) {
      memcpy(to, from, size_t(head));
      const int64_t done = head + stream_lines(to + head, from + head, bytes - head);
      _mm_sfence();  // before a counter says that the bytes are there
      to += done;
      from += done;
      bytes -= done;
    }
  }
#else
  (void)stream;
#endif
  if (bytes > 0) memcpy(to, from, size_t(bytes));
}

}  // namespace smp::shm
