#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/host_device.h"
#include "kernels/wide.h"

// The body of a CUDA kernel is written once, against a Block: the threads that work on one piece
// together. On a GPU that is a thread block, or a warp (device_block.cuh); in tests a few host
// threads with a barrier play its part, so that indices, arithmetic and exchanges are checked where
// no GPU is. A Block has
//   index(), count()     its place among the blocks of the launch
//   thread(), threads()  this thread's place in it
//   sum(v), maximum(v)   over its threads, the same bits for each; all of them call alike
namespace smp::cuda {

// Calls body(i) for the i < count of this thread, where the launch's threads share them.
template <typename Block, typename Body>
SMP_HOST_DEVICE void for_each(const Block& block, int64_t count, const Body& body) {
  const int64_t step = block.count() * block.threads();
  for (int64_t i = block.index() * block.threads() + block.thread(); i < count; i += step) body(i);
}

// The same for the rows of a matrix, a block to each: body(row) runs on all threads of the block.
template <typename Block, typename Body>
SMP_HOST_DEVICE void for_each_row(const Block& block, int64_t rows, const Body& body) {
  for (int64_t row = block.index(); row < rows; row += block.count()) body(row);
}

// And for the columns of one row: body(c).
template <typename Block, typename Body>
SMP_HOST_DEVICE void for_each_column(const Block& block, int64_t cols, const Body& body) {
  for (int64_t c = block.thread(); c < cols; c += block.threads()) body(c);
}

// A strip: elements side by side that a thread reads and writes at once, and computes with in wide.
// That takes 16 bytes at a multiple of 16; where not all lie so, strips have one element each. So a
// body is written for any width, a type that holds a constant.
inline constexpr int64_t kStripBytes = 16;
template <int kWidth>
using Width = std::integral_constant<int, kWidth>;
template <typename T>
using StripWidth = Width<static_cast<int>(kStripBytes / sizeof(T))>;

template <typename C, int kWidth>
struct Strip {
  C values[kWidth];

  SMP_HOST_DEVICE C& operator[](int k) { return values[k]; }
  SMP_HOST_DEVICE const C& operator[](int k) const { return values[k]; }
};

// What makes the compiler move a strip at once.
template <typename T, int kWidth>
struct alignas(sizeof(T) * kWidth < kStripBytes ? sizeof(T) * kWidth : kStripBytes) StripInMemory {
  T elements[kWidth];
};

template <int kWidth, typename T>
SMP_HOST_DEVICE Strip<kernels::Wide<T>, kWidth> load(Width<kWidth>, const T* from) {
  const auto memory = *reinterpret_cast<const StripInMemory<T, kWidth>*>(from);
  Strip<kernels::Wide<T>, kWidth> strip;
  for (int k = 0; k < kWidth; ++k) strip[k] = kernels::Wide<T>(memory.elements[k]);
  return strip;
}

// At from + at; zeros where `from` is null.
template <int kWidth, typename T>
SMP_HOST_DEVICE Strip<kernels::Wide<T>, kWidth> load_or_zeros(Width<kWidth> width, const T* from,
                                                              int64_t at) {
  return from != nullptr ? load(width, from + at) : Strip<kernels::Wide<T>, kWidth>{};
}

// Column c's strip of a row, with its bias, which may be null.
template <int kWidth, typename T>
SMP_HOST_DEVICE Strip<kernels::Wide<T>, kWidth> load_with_bias(Width<kWidth> width, const T* row,
                                                               const T* bias, int64_t c) {
  auto strip = load(width, row + c);
  const auto shift = load_or_zeros(width, bias, c);
  for (int k = 0; k < kWidth; ++k) strip[k] += shift[k];
  return strip;
}

template <typename T, int kWidth>
SMP_HOST_DEVICE void store(const Strip<kernels::Wide<T>, kWidth>& strip, T* to) {
  StripInMemory<T, kWidth> memory;
  for (int k = 0; k < kWidth; ++k) memory.elements[k] = T(strip[k]);
  *reinterpret_cast<StripInMemory<T, kWidth>*>(to) = memory;
}

// Whether whole strips may begin at all of these places; null does not matter.
template <typename... T>
SMP_HOST_DEVICE bool are_aligned(const T*... places) {
  return (reinterpret_cast<uintptr_t>(places) | ...) % kStripBytes == 0;
}

// body(width) of strips of T: whole ones where `cols` are that. `aligned`: of all that is read or
// written, where the first row begins.
template <typename T, typename Body>
SMP_HOST_DEVICE void with_strip_width(int64_t cols, bool aligned, const Body& body) {
  if (aligned && cols % StripWidth<T>() == 0) {
    body(StripWidth<T>());
  } else {
    body(Width<1>());
  }
}

// The strips of a matrix, where the launch's threads share them: body(width, row, c), c of the
// first column.
template <typename T, typename Block, typename Body>
SMP_HOST_DEVICE void for_each_strip(const Block& block, int64_t rows, int64_t cols, bool aligned,
                                    const Body& body) {
  with_strip_width<T>(cols, aligned, [&](auto width) {
    const int64_t strips = cols / width;
    for_each(block, rows * strips, [&](int64_t i) { body(width, i / strips, i % strips * width); });
  });
}

// And those of one row: body(width, c).
template <typename T, typename Block, typename Body>
SMP_HOST_DEVICE void for_each_strip_of_row(const Block& block, int64_t cols, bool aligned,
                                           const Body& body) {
  with_strip_width<T>(cols, aligned, [&](auto width) {
    for_each_column(block, cols / width, [&](int64_t strip) { body(width, strip * width); });
  });
}

}  // namespace smp::cuda
