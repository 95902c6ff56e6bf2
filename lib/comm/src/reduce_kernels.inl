// The reduction kernels; included once for each instruction set by a file that is compiled for it.
// Only what is in this anonymous namespace may be used here: a shared inline function compiled with
// AVX-512 could be the copy that the linker keeps for everybody.
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
inline F16 narrow_f16(float value) { return F16{_cvtss_sh(value, 0)}; }
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

constexpr long kBlock = 1024;  // elements of an accumulator that stays in the first-level cache

// What is done with each further input, and at last with the result.
template <class T>
struct Sum {
  static T apply(T a, T b) { return a + b; }
  static T end(T a, int) { return a; }
};
template <class T>
struct Average : Sum<T> {
  static T end(T a, int ranks) { return a / T(ranks); }
};
// Integer sums wrap around, which is defined for unsigned types only; the average of a signed type
// is signed.
template <class Signed, class Unsigned>
struct SignedAverage {
  static Unsigned apply(Unsigned a, Unsigned b) { return a + b; }
  static Unsigned end(Unsigned a, int ranks) { return Unsigned(Signed(a) / Signed(ranks)); }
};
template <class T>
using AverageI32 = SignedAverage<int, T>;
template <class T>
using AverageU8 = SignedAverage<int, T>;  // in int: there may be more ranks than a byte counts
template <class T>
using AverageI64 = SignedAverage<long, T>;
template <class T>
struct Product {
  static T apply(T a, T b) { return a * b; }
  static T end(T a, int) { return a; }
};
template <class T>
struct Max {
  static T apply(T a, T b) { return b > a || b != b ? b : a; }
  static T end(T a, int) { return a; }
};
template <class T>
struct Min {
  static T apply(T a, T b) { return b < a || b != b ? b : a; }
  static T end(T a, int) { return a; }
};

// Types that are reduced as they are.
template <class T, template <class> class Op>
void reduce_plain(std::byte* out_bytes, const std::byte* const* from, int inputs, int64_t count,
                  int ranks) {
  T* out = reinterpret_cast<T*>(out_bytes);
  auto in = [from](int k) { return reinterpret_cast<const T*>(from[k]); };
  const T *a = in(0), *b = in(1);
  if (inputs == 2) {
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) out[i] = Op<T>::end(Op<T>::apply(a[i], b[i]), ranks);
    return;
  }
  if (inputs == 4) {
    const T *c = in(2), *d = in(3);
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i)
      out[i] = Op<T>::end(Op<T>::apply(Op<T>::apply(Op<T>::apply(a[i], b[i]), c[i]), d[i]), ranks);
    return;
  }
  for (int64_t at = 0; at < count; at += kBlock) {
    const int64_t n = count - at < kBlock ? count - at : kBlock;
    T sum[kBlock];
    for (int64_t i = 0; i < n; ++i) sum[i] = Op<T>::apply(a[at + i], b[at + i]);
    for (int k = 2; k < inputs; ++k) {
      const T* x = in(k) + at;
      for (int64_t i = 0; i < n; ++i) sum[i] = Op<T>::apply(sum[i], x[i]);
    }
    for (int64_t i = 0; i < n; ++i) out[at + i] = Op<T>::end(sum[i], ranks);
  }
}

void widen_block(float* to, const BF16* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = widen(from[i]);
}
void narrow_block(BF16* to, const float* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = narrow_bf16(from[i]);
}

void widen_block(float* to, const F16* from, int64_t n) {
  int64_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(to + i,
                     _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
#endif
  for (; i < n; ++i) to[i] = widen(from[i]);
}
void narrow_block(F16* to, const float* from, int64_t n) {
  int64_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), 0));
#endif
  for (; i < n; ++i) to[i] = narrow_f16(from[i]);
}

// 16-bit floats: all inputs are summed in fp32 and rounded once.
template <class T, template <class> class Op>
void reduce_widened(std::byte* out_bytes, const std::byte* const* from, int inputs, int64_t count,
                    int ranks) {
  T* out = reinterpret_cast<T*>(out_bytes);
  for (int64_t at = 0; at < count; at += kBlock) {
    const int64_t n = count - at < kBlock ? count - at : kBlock;
    float sum[kBlock], next[kBlock];
    widen_block(sum, reinterpret_cast<const T*>(from[0]) + at, n);
    for (int k = 1; k < inputs; ++k) {
      widen_block(next, reinterpret_cast<const T*>(from[k]) + at, n);
      for (int64_t i = 0; i < n; ++i) sum[i] = Op<float>::apply(sum[i], next[i]);
    }
    for (int64_t i = 0; i < n; ++i) sum[i] = Op<float>::end(sum[i], ranks);
    narrow_block(out + at, sum, n);
  }
}

template <template <class> class Op>
smp::shm::ReduceKernel kernel_of_floats(smp::DType dtype) {
  switch (dtype) {
    case smp::DType::kF32: return reduce_plain<float, Op>;
    case smp::DType::kF64: return reduce_plain<double, Op>;
    case smp::DType::kBF16: return reduce_widened<BF16, Op>;
    default: return reduce_widened<F16, Op>;
  }
}

// Sums and products are the same bits for signed and unsigned integers.
template <class Signed, class Unsigned, template <class> class Mean>
smp::shm::ReduceKernel kernel_of_integers(smp::ReduceOp op) {
  switch (op) {
    case smp::ReduceOp::kSum: return reduce_plain<Unsigned, Sum>;
    case smp::ReduceOp::kMax: return reduce_plain<Signed, Max>;
    case smp::ReduceOp::kMin: return reduce_plain<Signed, Min>;
    case smp::ReduceOp::kProduct: return reduce_plain<Unsigned, Product>;
    case smp::ReduceOp::kAverage: return reduce_plain<Unsigned, Mean>;
  }
  return nullptr;
}

smp::shm::ReduceKernel kernel(smp::DType dtype, smp::ReduceOp op) {
  switch (dtype) {
    case smp::DType::kI32: return kernel_of_integers<int, unsigned int, AverageI32>(op);
    case smp::DType::kI64: return kernel_of_integers<long, unsigned long, AverageI64>(op);
    case smp::DType::kU8: return kernel_of_integers<unsigned char, unsigned char, AverageU8>(op);
    default: break;
  }
  switch (op) {
    case smp::ReduceOp::kSum: return kernel_of_floats<Sum>(dtype);
    case smp::ReduceOp::kMax: return kernel_of_floats<Max>(dtype);
    case smp::ReduceOp::kMin: return kernel_of_floats<Min>(dtype);
    case smp::ReduceOp::kProduct: return kernel_of_floats<Product>(dtype);
    case smp::ReduceOp::kAverage: return kernel_of_floats<Average>(dtype);
  }
  return nullptr;
}

}  // namespace
