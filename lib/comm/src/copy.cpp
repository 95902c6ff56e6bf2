#include "copy.h"

#include <cstring>

#if defined(__x86_64__)
#  include <emmintrin.h>
#endif

namespace smp::shm {

void copy_bytes(std::byte* to, const std::byte* from, int64_t bytes, bool stream) {
  if (bytes <= 0 || to == from) return;
#if defined(__x86_64__)
  if (stream) {
    const int64_t head = int64_t(-reinterpret_cast<uintptr_t>(to) & 15);
    if (head < bytes) {
      memcpy(to, from, size_t(head));
      to += head;
      from += head;
      bytes -= head;
      for (; bytes >= 64; bytes -= 64, to += 64, from += 64) {
        const auto* source = reinterpret_cast<const __m128i*>(from);
        auto* target = reinterpret_cast<__m128i*>(to);
        const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
        const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
        _mm_stream_si128(target, a);
        _mm_stream_si128(target + 1, b);
        _mm_stream_si128(target + 2, c);
        _mm_stream_si128(target + 3, d);
      }
      _mm_sfence();  // before a counter says that the bytes are there
    }
  }
#else
  (void)stream;
#endif
  if (bytes > 0) memcpy(to, from, size_t(bytes));
}

}  // namespace smp::shm
