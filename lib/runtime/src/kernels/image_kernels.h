#pragma once

#include <cstdint>
#include <vector>

#include "kernels/wide.h"

// Loops over images [samples, channels, height, width], one thread, in fp64, fp32, bf16 and fp16.
// Patches for convolutions (im2col) and poolings. Sums are wide and rounded once. Loops that sum
// element by element of an image take a buffer `sums` for one image; it is not read if elements are
// wide.
namespace smp::kernels {

// Windows of `kernel` x `kernel` over one sample, with zero padding.
struct PatchShape {
  int64_t channels = 0, height = 0, width = 0;
  int64_t kernel = 1, stride = 1, padding = 0;
  int64_t out_height = 0, out_width = 0;

  int64_t elements() const { return channels * height * width; }
  int64_t windows() const { return out_height * out_width; }
  int64_t patch() const { return channels * kernel * kernel; }
};

// Half-open range of rows or columns that one output is made of.
struct Window {
  int64_t begin = 0, end = 0;
};
// Of a mean: along both axes.
struct MeanShape {
  int64_t height = 0, width = 0;
  std::vector<Window> rows, cols;

  int64_t windows() const { return static_cast<int64_t>(rows.size() * cols.size()); }
};

#define SMP_KERNELS_OF(T)                                                                        \
  /* patches [samples * windows, channels * kernel * kernel] */                                  \
  void copy_patches(const PatchShape& shape, int64_t samples, const T* images, T* patches);      \
  /* images = the sum of what each patch has of them; `sums` of a sample */                      \
  void sum_patches(const PatchShape& shape, int64_t samples, const T* patches, T* images,        \
                   Wide<T>* sums);                                                               \
  /* images [samples, channels, windows] from rows [samples * windows, channels] and a bias,  */ \
  /* which may be null */                                                                        \
  void channels_first(int64_t samples, int64_t channels, int64_t windows, const T* rows,         \
                      const T* bias, T* images);                                                 \
  void channels_last(int64_t samples, int64_t channels, int64_t windows, const T* images,        \
                     T* rows);                                                                   \
  /* Of `planes` = samples x channels images; places are elements of a plane. */                 \
  void max_pool(const PatchShape& shape, int64_t planes, const T* x, T* y, int32_t* places);     \
  void max_pool_backward(const PatchShape& shape, int64_t planes, const T* dy,                   \
                         const int32_t* places, T* dx, Wide<T>* sums);                           \
  void mean_pool(const MeanShape& shape, int64_t planes, const T* x, T* y);                      \
  void mean_pool_backward(const MeanShape& shape, int64_t planes, const T* dy, T* dx,            \
                          Wide<T>* sums);

SMP_KERNELS_OF(float)
SMP_KERNELS_OF(double)
SMP_KERNELS_OF(c10::BFloat16)
SMP_KERNELS_OF(c10::Half)
#undef SMP_KERNELS_OF

}  // namespace smp::kernels
