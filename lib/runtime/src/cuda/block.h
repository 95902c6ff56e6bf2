#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/host_device.h"
#include "kernels/wide.h"

// A Block is the group of threads that work together on one part of a launch. The body of a CUDA
// kernel is written once, as a template over the Block. On a GPU a Block is a thread block or a
// warp (device_block.cuh). In tests a Block is a few host threads with a barrier, so indices,
// arithmetic and exchanges are tested without a GPU. A Block has
//   index(), count()     index of this block in the launch, number of blocks
//   thread(), threads()  index of this thread in the block, number of threads
//   sum(v), maximum(v)   reductions over the block's threads: every thread calls them and gets the
//                        same bits
namespace smp::cuda {

// Distributes i < count over all threads of the launch: calls body(i) for this thread's i.
template <typename Block, typename Body>
SMP_HOST_DEVICE void for_each(const Block& block, int64_t count, const Body& body) {
  const int64_t step = block.count() * block.threads();
  for (int64_t i = block.index() * block.threads() + block.thread(); i < count; i += step) body(i);
}

// Distributes rows over the blocks of the launch: body(row) runs on all threads of a block.
template <typename Block, typename Body>
SMP_HOST_DEVICE void for_each_row(const Block& block, int64_t rows, const Body& body) {
  for (int64_t row = block.index(); row < rows; row += block.count()) body(row);
}

// Distributes the columns of one row over the threads of the block: body(c).
template <typename Block, typename Body>
SMP_HOST_DEVICE void for_each_column(const Block& block, int64_t cols, const Body& body) {
  for (int64_t c = block.thread(); c < cols; c += block.threads()) body(c);
}

// A strip is a run of adjacent elements that a thread reads and writes in one access. A thread
// computes with a strip's elements in the wide type. A strip has 16 bytes, aligned to 16 bytes; if
// any pointer or row length is not aligned, strips have one element. So a body is written for any
// width, given as a type with a constant.
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

// The alignment lets the compiler move a strip in one access.
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

// The strip at from + at, or zeros if `from` is null.
template <int kWidth, typename T>
SMP_HOST_DEVICE Strip<kernels::Wide<T>, kWidth> load_or_zeros(Width<kWidth> width, const T* from,
                                                              int64_t at) {
  return from != nullptr ? load(width, from + at) : Strip<kernels::Wide<T>, kWidth>{};
}

// The strip of a row from column c on, plus the bias, which may be null.
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

// Whether all pointers are aligned to strips. Null pointers are aligned.
template <typename... T>
SMP_HOST_DEVICE bool are_aligned(const T*... places) {
  return (reinterpret_cast<uintptr_t>(places) | ...) % kStripBytes == 0;
}

// Calls body(width): whole strips if `cols` is a multiple of them, else one element. `aligned`: the
// first rows of all inputs and outputs are aligned to strips.
template <typename T, typename Body>
SMP_HOST_DEVICE void with_strip_width(int64_t cols, bool aligned, const Body& body) {
  if (aligned && cols % StripWidth<T>() == 0) {
    body(StripWidth<T>());
  } else {
    body(Width<1>());
  }
}

// Distributes the strips of a matrix over all threads of the launch: body(width, row, c), c being
// the strip's first column.
template <typename T, typename Block, typename Body>
SMP_HOST_DEVICE void for_each_strip(const Block& block, int64_t rows, int64_t cols, bool aligned,
                                    const Body& body) {
  with_strip_width<T>(cols, aligned, [&](auto width) {
    const int64_t strips = cols / width;
    for_each(block, rows * strips, [&](int64_t i) { body(width, i / strips, i % strips * width); });
  });
}

// Distributes the strips of one row over the threads of the block: body(width, c).
template <typename T, typename Block, typename Body>
SMP_HOST_DEVICE void for_each_strip_of_row(const Block& block, int64_t cols, bool aligned,
                                           const Body& body) {
  with_strip_width<T>(cols, aligned, [&](auto width) {
    for_each_column(block, cols / width, [&](int64_t strip) { body(width, strip * width); });
  });
}

}  // namespace smp::cuda
