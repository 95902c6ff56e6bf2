#include "kernels/image_kernels.h"

#include <algorithm>

namespace smp::kernels {
namespace {

// Calls body(first element of the image's run, first of the patch's, count) for the rows of all
// windows that lie in the image, and skip(first of the patch's, count) for what lies beside it.
template <typename Body, typename Skip>
void for_each_run(const PatchShape& s, const Body& body, const Skip& skip) {
  int64_t to = 0;
  for (int64_t oy = 0; oy < s.out_height; ++oy) {
    for (int64_t ox = 0; ox < s.out_width; ++ox) {
      const int64_t x0 = ox * s.stride - s.padding;
      const int64_t before = std::clamp<int64_t>(-x0, 0, s.kernel);
      const int64_t inside = std::clamp<int64_t>(s.width - x0, before, s.kernel) - before;
      for (int64_t c = 0; c < s.channels; ++c) {
        for (int64_t ky = 0; ky < s.kernel; ++ky, to += s.kernel) {
          const int64_t y = oy * s.stride - s.padding + ky;
          if (y < 0 || y >= s.height) {
            skip(to, s.kernel);
            continue;
          }
          skip(to, before);
          body((c * s.height + y) * s.width + x0 + before, to + before, inside);
          skip(to + before + inside, s.kernel - before - inside);
        }
      }
    }
  }
}

template <typename T>
void copy_patches_of(const PatchShape& shape, int64_t samples, const T* images, T* patches) {
  for (int64_t n = 0; n < samples; ++n) {
    for_each_run(
        shape,
        [&](int64_t from, int64_t to, int64_t count) {
          std::copy_n(images + from, count, patches + to);
        },
        [&](int64_t to, int64_t count) { std::fill_n(patches + to, count, T(0)); });
    images += shape.elements();
    patches += shape.windows() * shape.patch();
  }
}

// body(sums) adds to `count` zeros, which lie where the result does or, of 16 bits, in `sums`.
template <typename T, typename Body>
void sum_into(int64_t count, T* result, Wide<T>* sums, const Body& body) {
  if constexpr (kIsNarrow<T>) {
    std::fill_n(sums, count, 0.0F);
    body(sums);
    narrow(count, sums, result);
  } else {
    std::fill_n(result, count, T(0));
    body(result);
  }
}

template <typename T>
void sum_patches_of(const PatchShape& shape, int64_t samples, const T* patches, T* images,
                    Wide<T>* sums) {
  for (int64_t n = 0; n < samples; ++n) {
    sum_into(shape.elements(), images, sums, [&](Wide<T>* image) {
      for_each_run(
          shape,
          [&](int64_t to, int64_t from, int64_t count) {
            for (int64_t i = 0; i < count; ++i) image[to + i] += Wide<T>(patches[from + i]);
          },
          [](int64_t, int64_t) {});
    });
    images += shape.elements();
    patches += shape.windows() * shape.patch();
  }
}

template <typename T>
void channels_first_of(int64_t samples, int64_t channels, int64_t windows, const T* rows,
                       const T* bias, T* images) {
  for (int64_t n = 0; n < samples; ++n, rows += windows * channels) {
    for (int64_t c = 0; c < channels; ++c) {
      const Wide<T> added = bias == nullptr ? Wide<T>(0) : Wide<T>(bias[c]);
      for (int64_t w = 0; w < windows; ++w) {
        *images++ = static_cast<T>(Wide<T>(rows[w * channels + c]) + added);
      }
    }
  }
}

template <typename T>
void channels_last_of(int64_t samples, int64_t channels, int64_t windows, const T* images,
                      T* rows) {
  for (int64_t n = 0; n < samples; ++n, rows += windows * channels) {
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t w = 0; w < windows; ++w) rows[w * channels + c] = *images++;
    }
  }
}

template <typename T>
void max_pool_of(const PatchShape& s, int64_t planes, const T* x, T* y, int32_t* places) {
  for (int64_t p = 0; p < planes; ++p, x += s.height * s.width) {
    for (int64_t oy = 0; oy < s.out_height; ++oy) {
      const int64_t y_begin = std::max<int64_t>(oy * s.stride - s.padding, 0);
      const int64_t y_end = std::min(oy * s.stride - s.padding + s.kernel, s.height);
      for (int64_t ox = 0; ox < s.out_width; ++ox) {
        const int64_t x_begin = std::max<int64_t>(ox * s.stride - s.padding, 0);
        const int64_t x_end = std::min(ox * s.stride - s.padding + s.kernel, s.width);
        int64_t place = y_begin * s.width + x_begin;
        for (int64_t iy = y_begin; iy < y_end; ++iy) {
          for (int64_t ix = x_begin; ix < x_end; ++ix) {
            const Wide<T> value = x[iy * s.width + ix];
            // A value that is no number is passed on, so that the loss shows it.
            if (value > Wide<T>(x[place]) || value != value) place = iy * s.width + ix;
          }
        }
        *y++ = x[place];
        *places++ = static_cast<int32_t>(place);
      }
    }
  }
}

template <typename T>
void max_pool_backward_of(const PatchShape& s, int64_t planes, const T* dy, const int32_t* places,
                          T* dx, Wide<T>* sums) {
  for (int64_t p = 0; p < planes; ++p, dx += s.height * s.width) {
    sum_into(s.height * s.width, dx, sums, [&](Wide<T>* plane) {
      for (int64_t w = 0; w < s.windows(); ++w) plane[*places++] += Wide<T>(*dy++);
    });
  }
}

// Calls body(window's rows, its columns) for the outputs of a plane, in order.
template <typename Body>
void for_each_mean(const MeanShape& s, const Body& body) {
  for (const Window& rows : s.rows) {
    for (const Window& cols : s.cols) body(rows, cols);
  }
}

int64_t size_of(const Window& window) { return window.end - window.begin; }

template <typename T>
void mean_pool_of(const MeanShape& s, int64_t planes, const T* x, T* y) {
  for (int64_t p = 0; p < planes; ++p, x += s.height * s.width) {
    for_each_mean(s, [&](const Window& rows, const Window& cols) {
      Wide<T> sum = 0;
      for (int64_t iy = rows.begin; iy < rows.end; ++iy) {
        for (int64_t ix = cols.begin; ix < cols.end; ++ix) sum += Wide<T>(x[iy * s.width + ix]);
      }
      *y++ = static_cast<T>(sum / static_cast<Wide<T>>(size_of(rows) * size_of(cols)));
    });
  }
}

template <typename T>
void mean_pool_backward_of(const MeanShape& s, int64_t planes, const T* dy, T* dx, Wide<T>* sums) {
  for (int64_t p = 0; p < planes; ++p, dx += s.height * s.width) {
    sum_into(s.height * s.width, dx, sums, [&](Wide<T>* plane) {
      for_each_mean(s, [&](const Window& rows, const Window& cols) {
        const Wide<T> share = Wide<T>(*dy++) / static_cast<Wide<T>>(size_of(rows) * size_of(cols));
        for (int64_t iy = rows.begin; iy < rows.end; ++iy) {
          for (int64_t ix = cols.begin; ix < cols.end; ++ix) plane[iy * s.width + ix] += share;
        }
      });
    });
  }
}

}  // namespace

#define SMP_KERNELS_OF(T)                                                                     \
  void copy_patches(const PatchShape& shape, int64_t samples, const T* images, T* patches) {  \
    copy_patches_of(shape, samples, images, patches);                                         \
  }                                                                                           \
  void sum_patches(const PatchShape& shape, int64_t samples, const T* patches, T* images,     \
                   Wide<T>* sums) {                                                           \
    sum_patches_of(shape, samples, patches, images, sums);                                    \
  }                                                                                           \
  void channels_first(int64_t samples, int64_t channels, int64_t windows, const T* rows,      \
                      const T* bias, T* images) {                                             \
    channels_first_of(samples, channels, windows, rows, bias, images);                        \
  }                                                                                           \
  void channels_last(int64_t samples, int64_t channels, int64_t windows, const T* images,     \
                     T* rows) {                                                               \
    channels_last_of(samples, channels, windows, images, rows);                               \
  }                                                                                           \
  void max_pool(const PatchShape& shape, int64_t planes, const T* x, T* y, int32_t* places) { \
    max_pool_of(shape, planes, x, y, places);                                                 \
  }                                                                                           \
  void max_pool_backward(const PatchShape& shape, int64_t planes, const T* dy,                \
                         const int32_t* places, T* dx, Wide<T>* sums) {                       \
    max_pool_backward_of(shape, planes, dy, places, dx, sums);                                \
  }                                                                                           \
  void mean_pool(const MeanShape& shape, int64_t planes, const T* x, T* y) {                  \
    mean_pool_of(shape, planes, x, y);                                                        \
  }                                                                                           \
  void mean_pool_backward(const MeanShape& shape, int64_t planes, const T* dy, T* dx,         \
                          Wide<T>* sums) {                                                    \
    mean_pool_backward_of(shape, planes, dy, dx, sums);                                       \
  }

SMP_KERNELS_OF(float)
SMP_KERNELS_OF(double)
SMP_KERNELS_OF(c10::BFloat16)
SMP_KERNELS_OF(c10::Half)
#undef SMP_KERNELS_OF

}  // namespace smp::kernels
