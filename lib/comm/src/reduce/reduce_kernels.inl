// The reduction kernels. A file that is compiled for an instruction set includes them once. They
// call only functions of this anonymous namespace. A shared inline function would also be compiled
// with AVX-512, and the linker could keep that copy for all callers.
namespace {

using Bits16 = unsigned short;
using Bits32 = unsigned int;

struct BF16 {
  Bits16 bits;
};
struct F16 {
  Bits16 bits;
};

inline float as_float(Bits32 bits) { return __builtin_bit_cast(float, bits); }
inline Bits32 as_bits(float value) { return __builtin_bit_cast(Bits32, value); }

inline float widen(BF16 x) { return as_float(Bits32(x.bits) << 16); }
inline BF16 narrow_bf16(float value) {
  const Bits32 bits = as_bits(value);
  const Bits32 rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const bool nan = (bits & 0x7fffffff) > 0x7f800000;
  return BF16{Bits16(nan ? (bits >> 16) | 0x40 : rounded)};
}

#if defined(__F16C__)
inline float widen(F16 x) { return _cvtsh_ss(x.bits); }
inline F16 narrow_f16(float value) {
  return F16{Bits16(_mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(value), 0), 0))};
}
#else
inline float widen(F16 x) {
  const Bits32 sign = Bits32(x.bits & 0x8000) << 16, rest = x.bits & 0x7fff;
  if (rest >= 0x7c00)
    return as_float(sign | 0x7f800000 | (rest & 0x3ff) << 13 | (rest > 0x7c00) << 22);
  if (rest >= 0x400) return as_float(sign | ((rest << 13) + 0x38000000));
  const float magnitude = float(rest) * 0x1p-24f;
  return as_float(sign | as_bits(magnitude));
}
inline F16 narrow_f16(float value) {
  const Bits32 bits = as_bits(value), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
  if (rest > 0x7f800000) return F16{Bits16(sign | 0x7e00 | (rest >> 13 & 0x3ff))};
  if (rest >= 0x477ff000) return F16{Bits16(sign | 0x7c00)};  // rounds to infinity
  if (rest < 0x38800000) {                                    // below 2^-14: a multiple of 2^-24
    const float shifted = as_float(rest) + 0.5f;              // ulp of [0.5, 1) is 2^-24
    return F16{Bits16(sign | (as_bits(shifted) - 0x3f000000))};
  }
  return F16{Bits16(sign | (rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13)};
}
#endif

#if defined(__AVX512F__)
constexpr int kWidth = 64;  // bytes of a vector
#elif defined(__AVX2__)
constexpr int kWidth = 32;
#else
constexpr int kWidth = 16;
#endif

// Vectors of types that are reduced without conversion. An average divides as `Divided`: integers
// are added as unsigned numbers, whose sums wrap around, and divided as signed numbers.
template <class T, class Divided = T>
struct Lanes {
  typedef T Vector __attribute__((vector_size(kWidth)));
  using Sums = Vector;

  static Sums load(const std::byte* from) {
    Vector v;
    __builtin_memcpy(&v, from, kWidth);
    return v;
  }
  static Vector packed(Sums v) { return v; }
  template <class Op>
  static Sums applied(Sums x, Sums y) {
    return Op::apply(x, y);
  }
  static Sums divided(Sums v, int ranks) {
    for (int i = 0; i < kWidth / int(sizeof(T)); ++i) v[i] = T(Divided(v[i]) / Divided(ranks));
    return v;
  }
};
using Floats = Lanes<float>::Vector;
using Words = Lanes<Bits32>::Vector;

// 16-bit floats are reduced in fp32.
struct TwoVectors {
  Floats a, b;
};
struct HalfLanes {
  using Sums = TwoVectors;
  template <class Op>
  static Sums applied(Sums x, Sums y) {
    return {Op::apply(x.a, y.a), Op::apply(x.b, y.b)};
  }
  static Sums divided(Sums v, int ranks) { return {v.a / float(ranks), v.b / float(ranks)}; }
};

// `a` has the elements 0, 2, 4, ..., which are the lower halves of words, `b` the others.
template <>
struct Lanes<BF16> : HalfLanes {
  static Sums load(const std::byte* from) {
    const Words both = Lanes<Bits32>::load(from);
    return {Floats(both << 16), Floats(both & 0xffff0000u)};
  }
  // Rounded to nearest even. A NaN stays a NaN: sums of bf16 NaNs or infinities have no bits below
  // the last kept place.
  static Words packed(Sums v) {
#if defined(__AVX2__) && !defined(__AVX512F__)
    // All upper halves at once, and all cut-off bits. The value rounds up if the cut-off bits are
    // above half of the last place, or exactly half with an odd last place.
    const __m256i a = __m256i(v.a), b = __m256i(v.b);
    const __m256i high = _mm256_blend_epi16(_mm256_srli_epi32(a, 16), b, 0xaa);
    const __m256i low = _mm256_blend_epi16(a, _mm256_slli_epi32(b, 16), 0xaa);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi16(1));
    const __m256i over = _mm256_subs_epu16(_mm256_adds_epu16(low, odd), _mm256_set1_epi16(-0x8000));
    return Words(_mm256_add_epi16(high, _mm256_min_epu16(over, _mm256_set1_epi16(1))));
#else
    return rounded(v.a) >> 16 | (rounded(v.b) & 0xffff0000u);
#endif
  }

 private:
  // Adds half of the last place that is kept, or one less if that place is even.
  static Words rounded(Floats v) {
#if defined(__AVX512F__)
    const __m512i bits = __m512i(v), up = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff));
    const __mmask16 is_odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
    return Words(_mm512_mask_add_epi32(up, is_odd, up, _mm512_set1_epi32(1)));
#else
    return Words(v) + 0x7fffu + (Words(v) >> 16 & 1u);
#endif
  }
};

#if defined(__AVX512F__)
// Written one by one: joining them to one vector takes longer (see docs/lab/collective-tuning.md).
struct TwoHalves {
  __m256i a, b;
};
#endif

// `a` has the first half of the elements.
template <>
struct Lanes<F16> : HalfLanes {
#if defined(__AVX512F__)
  static Sums load(const std::byte* from) {
    const auto* halves = reinterpret_cast<const __m256i*>(from);
    return {Floats(_mm512_maskz_cvtph_ps(kAll, _mm256_loadu_si256(halves))),
            Floats(_mm512_maskz_cvtph_ps(kAll, _mm256_loadu_si256(halves + 1)))};
  }
  static TwoHalves packed(Sums v) {
    return {_mm512_maskz_cvtps_ph(kAll, __m512(v.a), 0),
            _mm512_maskz_cvtps_ph(kAll, __m512(v.b), 0)};
  }

 private:
  // gcc 12 warns of the undefined vector in its forms without a mask.
  static constexpr __mmask16 kAll = 0xffff;

 public:
#elif defined(__AVX2__)
  static Sums load(const std::byte* from) {
    const auto* halves = reinterpret_cast<const __m128i*>(from);
    return {Floats(_mm256_cvtph_ps(_mm_loadu_si128(halves))),
            Floats(_mm256_cvtph_ps(_mm_loadu_si128(halves + 1)))};
  }
  static Words packed(Sums v) {
    const __m256i low = _mm256_castsi128_si256(_mm256_cvtps_ph(__m256(v.a), 0));
    return Words(_mm256_inserti128_si256(low, _mm256_cvtps_ph(__m256(v.b), 0), 1));
  }
#else
  static constexpr int kFloats = kWidth / int(sizeof(float));
  static Sums load(const std::byte* from) {
    F16 halves[2 * kFloats];
    __builtin_memcpy(halves, from, kWidth);
    Sums v{};
    for (int i = 0; i < kFloats; ++i) v.a[i] = widen(halves[i]);
    for (int i = 0; i < kFloats; ++i) v.b[i] = widen(halves[kFloats + i]);
    return v;
  }
  static Words packed(Sums v) {
    F16 halves[2 * kFloats];
    for (int i = 0; i < kFloats; ++i) halves[i] = narrow_f16(v.a[i]);
    for (int i = 0; i < kFloats; ++i) halves[kFloats + i] = narrow_f16(v.b[i]);
    Words both;
    __builtin_memcpy(&both, halves, kWidth);
    return both;
  }
#endif
};

// The operation with each further input, for scalars or vectors.
struct Sum {
  template <class V>
  static V apply(V a, V b) {
    return a + b;
  }
};
struct Average : Sum {};
struct Product {
  template <class V>
  static V apply(V a, V b) {
    return a * b;
  }
};
struct Max {
  template <class V>
  static V apply(V a, V b) {
    return ((b > a) | (b != b)) ? b : a;
  }
};
struct Min {
  template <class V>
  static V apply(V a, V b) {
    return ((b < a) | (b != b)) ? b : a;
  }
};
template <class Op>
constexpr bool kIsAverage = false;
template <>
constexpr bool kIsAverage<Average> = true;

// Non-temporal if kStream; `to` must then be aligned.
template <bool kStream, class Vector>
inline void put(std::byte* to, Vector v) {
#if defined(__AVX512F__)
  if constexpr (kStream) return _mm512_stream_si512(reinterpret_cast<__m512i*>(to), __m512i(v));
#elif defined(__AVX2__)
  if constexpr (kStream) return _mm256_stream_si256(reinterpret_cast<__m256i*>(to), __m256i(v));
#elif defined(__SSE2__)
  if constexpr (kStream) return _mm_stream_si128(reinterpret_cast<__m128i*>(to), __m128i(v));
#endif
  __builtin_memcpy(to, &v, kWidth);
}

#if defined(__AVX512F__)
template <bool kStream>
inline void put(std::byte* to, TwoHalves v) {
  if constexpr (kStream) {  // whole lines
    const __m512i a = _mm512_castsi256_si512(v.a);
    put<true>(to, _mm512_maskz_inserti64x4(0xff, a, v.b, 1));
  } else {
    auto* const halves = reinterpret_cast<__m256i*>(to);
    _mm256_storeu_si256(halves, v.a);
    _mm256_storeu_si256(halves + 1, v.b);
  }
}
#endif

// Vectors of each input that are reduced side by side, as many as there are registers for.
#if defined(__AVX512F__)
constexpr int kUnrolled = 4;
#else
constexpr int kUnrolled = 2;
#endif
constexpr int64_t kTile = kUnrolled * kWidth;

// The number of inputs that have their own load instructions. A CPU predicts the next address by
// the instruction, and one instruction that reads all inputs misleads it (see
// docs/lab/collective-tuning.md).
constexpr int kApart = 8;

using smp::reduce::Reduction;

// How far ahead of its use a far input is prefetched. The CPU's own prefetcher does not look far
// enough ahead beside inputs from its cache and the work on 16-bit floats.
constexpr int64_t kAhead = 4096;
constexpr int64_t kLine = 64;

// Reduces the bytes [at, at + kTile) of kInputs inputs; 0 means all inputs.
template <class L, class Op, bool kStream, int kInputs = 0>
[[gnu::always_inline]] inline void reduce_tile(const Reduction& r, const std::byte* const* inputs,
                                               int64_t at) {
  if (r.far >= 0)
    for (int64_t line = at; line < at + kTile; line += kLine)
      __builtin_prefetch(r.from[r.far] + kAhead + line);
  typename L::Sums sums[kUnrolled];
#pragma GCC unroll 4
  for (int u = 0; u < kUnrolled; ++u) sums[u] = L::load(inputs[0] + at + u * kWidth);
  const int count = kInputs > 0 ? kInputs : r.inputs;
  for (int first = 1; first < count; first += kApart) {
#pragma GCC unroll 8
    for (int k = first; k < first + kApart; ++k) {
      if (k >= count) break;
#pragma GCC unroll 4
      for (int u = 0; u < kUnrolled; ++u)
        sums[u] = L::template applied<Op>(sums[u], L::load(inputs[k] + at + u * kWidth));
    }
  }
  if constexpr (kIsAverage<Op>) {
#pragma GCC unroll 4
    for (int u = 0; u < kUnrolled; ++u) sums[u] = L::divided(sums[u], r.ranks);
  }
  decltype(L::packed(sums[0])) results[kUnrolled];
#pragma GCC unroll 4
  for (int u = 0; u < kUnrolled; ++u) results[u] = L::packed(sums[u]);
  for (int k = 0; k < r.outputs; ++k) {
    std::byte* const to = r.to[k] + at;
#pragma GCC unroll 4
    for (int u = 0; u < kUnrolled; ++u) {
      if (kStream && k >= r.cached)
        put<true>(to + u * kWidth, results[u]);
      else
        put<false>(to + u * kWidth, results[u]);
    }
  }
}

// Reduces the bytes [at, end), less than a tile.
template <class L, class Op>
[[gnu::noinline]] void reduce_edge(const Reduction& r, int64_t at, int64_t end) {
  for (; at < end; at += kWidth) {
    const auto bytes = size_t(end - at < kWidth ? end - at : kWidth);
    std::byte edge[kWidth] = {};
    const auto load = [&](int k) {
      __builtin_memcpy(edge, r.from[k] + at, bytes);
      return L::load(edge);
    };
    typename L::Sums sum = load(0);
    for (int k = 1; k < r.inputs; ++k) sum = L::template applied<Op>(sum, load(k));
    if constexpr (kIsAverage<Op>) sum = L::divided(sum, r.ranks);
    const auto result = L::packed(sum);
    for (int k = 0; k < r.outputs; ++k) __builtin_memcpy(r.to[k] + at, &result, bytes);
  }
}

// Bytes of the non-temporal results before the first address at which whole vectors may be written;
// -1 if it is at a different place in each.
inline int64_t bytes_to_aligned(const Reduction& r) {
  auto to_aligned = [&](int k) {
    return int64_t(-reinterpret_cast<uintptr_t>(r.to[k]) & (kWidth - 1));
  };
  for (int k = r.cached + 1; k < r.outputs; ++k)
    if (to_aligned(k) != to_aligned(r.cached)) return -1;
  return to_aligned(r.cached);
}

template <class L>
constexpr bool kSumsAreFp32 = __is_same(typename L::Sums, Floats) || __is_base_of(HalfLanes, L);

// For a known number of inputs their addresses and the rest of the reduction stay in registers,
// since no store of a result can change them (`r` is a copy).
template <class L, class Op, bool kStream, int kInputs>
int64_t reduce_known(const Reduction r, int64_t at, int64_t end) {
  const std::byte* inputs[kInputs];
  for (int k = 0; k < kInputs; ++k) inputs[k] = r.from[k];
  for (; at + kTile <= end; at += kTile) reduce_tile<L, Op, kStream, kInputs>(r, inputs, at);
  return at;
}

// Reduces the tiles of [at, end) and returns where they end.
template <class L, class Op, bool kStream>
int64_t reduce_tiles(const Reduction& r, int64_t at, int64_t end) {
  if constexpr (kSumsAreFp32<L> && __is_base_of(Sum, Op)) {
    if (r.inputs == 2) return reduce_known<L, Op, kStream, 2>(r, at, end);
    if (r.inputs == 4) return reduce_known<L, Op, kStream, 4>(r, at, end);
  }
  if constexpr (__is_same(L, Lanes<float>) && __is_base_of(Sum, Op)) {
    switch (r.inputs) {
      case 3: return reduce_known<L, Op, kStream, 3>(r, at, end);
      case 5: return reduce_known<L, Op, kStream, 5>(r, at, end);
      case 6: return reduce_known<L, Op, kStream, 6>(r, at, end);
      case 7: return reduce_known<L, Op, kStream, 7>(r, at, end);
      case 8: return reduce_known<L, Op, kStream, 8>(r, at, end);
      default: break;
    }
  }
  for (; at + kTile <= end; at += kTile) reduce_tile<L, Op, kStream>(r, r.from, at);
  return at;
}

template <class L, class Op, bool kStream>
void reduce_from(const Reduction& r, int64_t at, int64_t end) {
  const int64_t edge = reduce_tiles<L, Op, kStream>(r, at, end);
  if (edge < end) reduce_edge<L, Op>(r, edge, end);
}

template <class L, class Op>
void reduce(const Reduction& r, int64_t bytes) {
  const int64_t head = r.non_temporal ? bytes_to_aligned(r) : -1;
  if (head < 0 || head >= bytes) return reduce_from<L, Op, false>(r, 0, bytes);
  if (head > 0) reduce_edge<L, Op>(r, 0, head);
  reduce_from<L, Op, true>(r, head, bytes);
#if defined(__SSE2__)
  _mm_sfence();  // before a counter publishes the bytes
#endif
}

template <class L>
smp::reduce::ReduceKernel kernel_of(smp::comm::ReduceOp op) {
  switch (op) {
    case smp::comm::ReduceOp::kSum: return reduce<L, Sum>;
    case smp::comm::ReduceOp::kMax: return reduce<L, Max>;
    case smp::comm::ReduceOp::kMin: return reduce<L, Min>;
    case smp::comm::ReduceOp::kProduct: return reduce<L, Product>;
    case smp::comm::ReduceOp::kAverage: return reduce<L, Average>;
  }
  return nullptr;
}

// Sums and products are the same bits for signed and unsigned integers.
template <class Signed, class Unsigned, class Divided = Signed>
smp::reduce::ReduceKernel kernel_of_integers(smp::comm::ReduceOp op) {
  if (op == smp::comm::ReduceOp::kMax || op == smp::comm::ReduceOp::kMin)
    return kernel_of<Lanes<Signed>>(op);
  return kernel_of<Lanes<Unsigned, Divided>>(op);
}

smp::reduce::ReduceKernel kernel(smp::DType dtype, smp::comm::ReduceOp op) {
  switch (dtype) {
    case smp::DType::kF32: return kernel_of<Lanes<float>>(op);
    case smp::DType::kF64: return kernel_of<Lanes<double>>(op);
    case smp::DType::kBF16: return kernel_of<Lanes<BF16>>(op);
    case smp::DType::kF16: return kernel_of<Lanes<F16>>(op);
    case smp::DType::kI32: return kernel_of_integers<int, unsigned int>(op);
    case smp::DType::kI64: return kernel_of_integers<long, unsigned long>(op);
    // Divided in int: there may be more ranks than a byte counts.
    case smp::DType::kU8: return kernel_of<Lanes<unsigned char, int>>(op);
  }
  return nullptr;
}

}  // namespace
