#include "reduce/copy.h"

#include <cstring>

#if defined(__x86_64__)
#  include <immintrin.h>
#endif

namespace smp::reduce {
namespace {

#if defined(__x86_64__)
constexpr int64_t kLine = 64;

template <bool kStream>
int64_t copy_sse2(std::byte* to, const std::byte* from, int64_t bytes) {
  constexpr int kVectors = 4;
  const int64_t whole = bytes / kLine * kLine;
  for (int64_t at = 0; at < whole; at += kLine) {
    const auto* source = reinterpret_cast<const __m128i*>(from + at);
    auto* target = reinterpret_cast<__m128i*>(to + at);
    __m128i line[kVectors];
#  pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) line[i] = _mm_loadu_si128(source + i);
#  pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i)
      kStream ? _mm_stream_si128(target + i, line[i]) : _mm_store_si128(target + i, line[i]);
  }
  return whole;
}

template <bool kStream>
[[gnu::target("avx2")]] int64_t copy_avx2(std::byte* to, const std::byte* from, int64_t bytes) {
  constexpr int kVectors = 2;
  const int64_t whole = bytes / kLine * kLine;
  for (int64_t at = 0; at < whole; at += kLine) {
    const auto* source = reinterpret_cast<const __m256i*>(from + at);
    auto* target = reinterpret_cast<__m256i*>(to + at);
    __m256i line[kVectors];
#  pragma GCC unroll 2
    for (int i = 0; i < kVectors; ++i) line[i] = _mm256_loadu_si256(source + i);
#  pragma GCC unroll 2
    for (int i = 0; i < kVectors; ++i)
      kStream ? _mm256_stream_si256(target + i, line[i]) : _mm256_store_si256(target + i, line[i]);
  }
  return whole;
}

template <bool kStream>
[[gnu::target("avx512f")]] int64_t copy_avx512(std::byte* to, const std::byte* from,
                                               int64_t bytes) {
  constexpr int kLines = 4;
  constexpr int64_t kTile = kLines * kLine;
  const int64_t whole = bytes / kTile * kTile;
  for (int64_t at = 0; at < whole; at += kTile) {
    __m512i lines[kLines];
#  pragma GCC unroll 4
    for (int i = 0; i < kLines; ++i) lines[i] = _mm512_loadu_si512(from + at + i * kLine);
#  pragma GCC unroll 4
    for (int i = 0; i < kLines; ++i) {
      auto* target = reinterpret_cast<__m512i*>(to + at + i * kLine);
      kStream ? _mm512_stream_si512(target, lines[i]) : _mm512_store_si512(target, lines[i]);
    }
  }
  return whole;
}

// Whether vectors are quicker than memcpy. glibc before 2.40 uses `rep movsb` from 2 KiB on, which
// takes tens of nanoseconds to begin and on a Zen 3 or 4 is never quicker; elsewhere it is from 4
// KiB on. See docs/lab/collective-tuning.md.
bool are_vectors_quicker(int64_t bytes) {
  constexpr int64_t kFewBytes = 512;  // up to here memcpy uses vectors itself
  constexpr int64_t kLongBytes = 4 << 10;
  return bytes >= kFewBytes && (bytes < kLongBytes || __builtin_cpu_is("amdfam19h") != 0);
}

#  if defined(__SANITIZE_THREAD__)
constexpr bool kByLines = false;  // ThreadSanitizer sees no vectors above 16 bytes
#  else
constexpr bool kByLines = true;
#  endif

// Copies whole lines of `to` by `copy_lines`, and the bytes before and after them by memcpy.
void copy_by_lines(std::byte* to, const std::byte* from, int64_t bytes, LineCopy copy_lines) {
  const int64_t head = int64_t(-reinterpret_cast<uintptr_t>(to) & uintptr_t(kLine - 1));
  if (head >= bytes) return void(memcpy(to, from, size_t(bytes)));
  if (head > 0) memcpy(to, from, size_t(head));
  const int64_t done = head + copy_lines(to + head, from + head, bytes - head);
  if (done < bytes) memcpy(to + done, from + done, size_t(bytes - done));
}
#endif

}  // namespace

std::vector<LineCopies> line_copies_here() {
  std::vector<LineCopies> copies;
#if defined(__x86_64__)
  copies.push_back({"sse2", copy_sse2<false>, copy_sse2<true>});
  if (__builtin_cpu_supports("avx2")) copies.push_back({"avx2", copy_avx2<false>, copy_avx2<true>});
  if (__builtin_cpu_supports("avx512f"))
    copies.push_back({"avx512", copy_avx512<false>, copy_avx512<true>});
#endif
  return copies;
}

void prefetch_for_write(std::byte* to, int64_t bytes) {
  constexpr int64_t kMany = 4 << 10;  // above this a prefetch takes longer than it saves
  if (bytes >= kMany) return;
#if defined(__x86_64__)
  for (int64_t at = 0; at < bytes; at += kLine) asm volatile("prefetchw %0" : : "m"(to[at]));
#else
  (void)to;
#endif
}

void copy_bytes(std::byte* to, const std::byte* from, int64_t bytes, bool non_temporal) {
  if (bytes <= 0 || to == from) return;
#if defined(__x86_64__)
  if (kByLines && (non_temporal || are_vectors_quicker(bytes))) {
    static const LineCopies by_lines = line_copies_here().back();
    copy_by_lines(to, from, bytes, non_temporal ? by_lines.non_temporal : by_lines.cached);
    if (non_temporal) _mm_sfence();  // before a counter publishes the bytes
    return;
  }
#else
  (void)non_temporal;
#endif
  memcpy(to, from, size_t(bytes));
}

}  // namespace smp::reduce
