#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/dropout.h"
#include "kernels/kernels.h"

// The kernels of bf16 and fp16: a few rows at a time are widened to fp32, worked on by the fp32
// loop while they lie in cache, and rounded once.
namespace smp::kernels {
namespace {

constexpr int64_t kRowsAtOnce = 16;
constexpr int64_t kDroppedAtOnce = 1 << 17;  // elements: 512 KiB in fp32

// Calls body(first row, rows) for all rows, a block at a time.
template <typename Body>
void for_blocks(int64_t rows, int64_t at_once, Body&& body) {
  for (int64_t first = 0; first < rows; first += at_once) {
    body(first, std::min(at_once, rows - first));
  }
}
template <typename Body>
void for_blocks(int64_t rows, Body&& body) {
  for_blocks(rows, kRowsAtOnce, std::forward<Body>(body));
}

// A few rows in fp32.
class Rows {
 public:
  explicit Rows(int64_t cols, int64_t rows = kRowsAtOnce)
      : cols_(cols), values_(static_cast<size_t>(rows * cols)) {}

  float* data() { return values_.data(); }
  template <typename T>
  float* load(const T* x, int64_t first, int64_t count) {
    widen(count * cols_, x + first * cols_, data());
    return data();
  }
  template <typename T>
  void store(int64_t first, int64_t count, T* x) {
    narrow(count * cols_, data(), x + first * cols_);
  }

 private:
  int64_t cols_;
  std::vector<float> values_;
};

NormShape with_rows(NormShape shape, int64_t rows) {
  shape.rows = rows;
  return shape;
}

template <typename T>
void norm_forward_of(const NormShape& shape, float epsilon, const T* x, const T* weight,
                     const T* bias, T* y, float* stats) {
  const WideVector<T> w(shape.cols, weight), b(shape.cols, bias);
  Rows rows(shape.cols);
  for_blocks(shape.rows, [&](int64_t first, int64_t count) {
    float* block = rows.load(x, first, count);
    norm_forward(with_rows(shape, count), epsilon, block, w.data(), b.data(), block,
                 stats + first * shape.stats_per_row());
    rows.store(first, count, y);
  });
}

template <typename T>
void sum_and_norm_of(const NormShape& shape, const Dropout& dropout, float epsilon, const T* x,
                     const T* bias, T* y, const T* weight, const T* norm_bias, T* normed,
                     float* stats) {
  const int64_t cols = shape.cols;
  const WideVector<T> b(cols, bias), w(cols, weight), nb(cols, norm_bias);
  Rows residuals(cols), sums(cols);
  for_blocks(shape.rows, [&](int64_t first, int64_t count) {
    const float* residual = residuals.load(x, first, count);
    float* block = sums.load(y, first, count);
    if (dropout.is_on()) {
      add_residual_dropped(dropout.from_row(first), count, cols, residual, b.data(), block);
    } else {
      add_residual(count, cols, residual, b.data(), block);
    }
    sums.store(first, count, y);
    sums.load(y, first, count);  // the norm is that of what is kept
    norm_forward(with_rows(shape, count), epsilon, block, w.data(), nb.data(), block,
                 stats + first * shape.stats_per_row());
    sums.store(first, count, normed);
  });
}

template <typename T>
void norm_apply_of(const NormShape& shape, const T* x, const float* stats, const T* weight,
                   const T* bias, T* y) {
  const WideVector<T> w(shape.cols, weight), b(shape.cols, bias);
  Rows rows(shape.cols);
  for_blocks(shape.rows, [&](int64_t first, int64_t count) {
    float* block = rows.load(x, first, count);
    norm_apply(with_rows(shape, count), block, stats + first * shape.stats_per_row(), w.data(),
               b.data(), block);
    rows.store(first, count, y);
  });
}

template <typename T>
void norm_backward_of(const NormShape& shape, const T* dy, const T* x, const float* stats,
                      const T* weight, const T* residual, T* dx, float* dweight, float* dbias) {
  const WideVector<T> w(shape.cols, weight);
  Rows gradients(shape.cols), inputs(shape.cols), residuals(shape.cols);
  for_blocks(shape.rows, [&](int64_t first, int64_t count) {
    float* block = gradients.load(dy, first, count);
    norm_backward(with_rows(shape, count), block, inputs.load(x, first, count),
                  stats + first * shape.stats_per_row(), w.data(),
                  residual == nullptr ? nullptr : residuals.load(residual, first, count), block,
                  dweight, dbias);
    gradients.store(first, count, dx);
  });
}

// How an activation is cut into blocks. Without a bias or a gate rows mean nothing, and may be far
// wider than a cache: it is taken by elements.
class ActivationBlocks {
 public:
  ActivationBlocks(const ActivationShape& shape, const void* bias)
      : shape_(shape), by_elements_(bias == nullptr && !shape.gated) {}

  int64_t cols() const { return by_elements_ ? 1 : shape_.cols; }
  int64_t input_cols() const { return shape_.gated ? 2 * shape_.cols : cols(); }
  int64_t rows() const { return by_elements_ ? shape_.rows * shape_.cols : shape_.rows; }
  int64_t at_once() const { return by_elements_ ? kElementsAtOnce : kRowsAtOnce; }
  // Of `count` rows.
  ActivationShape block(int64_t count) const {
    ActivationShape shape = shape_;
    shape.rows = by_elements_ ? 1 : count;
    if (by_elements_) shape.cols = count;
    return shape;
  }

 private:
  static constexpr int64_t kElementsAtOnce = 1024;
  const ActivationShape shape_;
  const bool by_elements_;
};

template <typename T>
void activation_forward_of(const ActivationShape& shape, const T* u, const T* bias, T* y) {
  const ActivationBlocks blocks(shape, bias);
  const WideVector<T> b(blocks.input_cols(), bias);
  Rows inputs(blocks.input_cols(), blocks.at_once()), results(blocks.cols(), blocks.at_once());
  for_blocks(blocks.rows(), blocks.at_once(), [&](int64_t first, int64_t count) {
    activation_forward(blocks.block(count), inputs.load(u, first, count), b.data(), results.data());
    results.store(first, count, y);
  });
}

template <typename T>
void activation_backward_of(const ActivationShape& shape, T* u, const T* bias, T* dy,
                            float* dbias) {
  const ActivationBlocks blocks(shape, bias);
  const WideVector<T> b(blocks.input_cols(), bias);
  Rows inputs(blocks.input_cols(), blocks.at_once()), gradients(blocks.cols(), blocks.at_once());
  for_blocks(blocks.rows(), blocks.at_once(), [&](int64_t first, int64_t count) {
    activation_backward(blocks.block(count), inputs.load(u, first, count), b.data(),
                        gradients.load(dy, first, count), dbias);
    inputs.store(first, count, u);
    gradients.store(first, count, dy);
  });
}

template <typename T>
void add_column_sums_of(int64_t rows, int64_t cols, const T* x, float* sums) {
  Rows block(cols);
  for_blocks(rows, [&](int64_t first, int64_t count) {
    add_column_sums(count, cols, block.load(x, first, count), sums);
  });
}

template <typename T>
void accumulate_of(int64_t count, const T* x, float* sums) {
  constexpr int64_t kAtOnce = 256;
  float wide[kAtOnce];
  for (int64_t first = 0; first < count; first += kAtOnce) {
    const int64_t n = std::min(kAtOnce, count - first);
    widen(n, x + first, wide);
    accumulate(n, wide, sums + first);
  }
}

template <typename T>
void add_residual_of(int64_t rows, int64_t cols, const T* x, const T* bias, T* y) {
  const WideVector<T> b(cols, bias);
  Rows residuals(cols), sums(cols);
  for_blocks(rows, [&](int64_t first, int64_t count) {
    add_residual(count, cols, residuals.load(x, first, count), b.data(),
                 sums.load(y, first, count));
    sums.store(first, count, y);
  });
}

template <typename T>
void drop_of(const Dropout& dropout, int64_t rows, int64_t cols, const T* x, T* y) {
  // Those of images are wide: of a sample each.
  const int64_t at_once = std::clamp<int64_t>(kDroppedAtOnce / cols, 1, kRowsAtOnce);
  Rows block(cols, at_once);
  for_blocks(rows, at_once, [&](int64_t first, int64_t count) {
    float* wide = block.load(x, first, count);
    drop(dropout.from_row(first), count, cols, wide, wide);
    block.store(first, count, y);
  });
}

template <typename T>
void add_residual_dropped_of(const Dropout& dropout, int64_t rows, int64_t cols, const T* x,
                             const T* bias, T* y) {
  const WideVector<T> b(cols, bias);
  Rows residuals(cols), sums(cols);
  for_blocks(rows, [&](int64_t first, int64_t count) {
    add_residual_dropped(dropout.from_row(first), count, cols, residuals.load(x, first, count),
                         b.data(), sums.load(y, first, count));
    sums.store(first, count, y);
  });
}

}  // namespace

#define SMP_DEFINE(T)                                                                           \
  void sum_and_norm(const NormShape& shape, const Dropout& dropout, float epsilon, const T* x,  \
                    const T* bias, T* y, const T* weight, const T* norm_bias, T* normed,        \
                    float* stats) {                                                             \
    sum_and_norm_of(shape, dropout, epsilon, x, bias, y, weight, norm_bias, normed, stats);     \
  }                                                                                             \
  void norm_forward(const NormShape& shape, float epsilon, const T* x, const T* weight,         \
                    const T* bias, T* y, float* stats) {                                        \
    norm_forward_of(shape, epsilon, x, weight, bias, y, stats);                                 \
  }                                                                                             \
  void norm_apply(const NormShape& shape, const T* x, const float* stats, const T* weight,      \
                  const T* bias, T* y) {                                                        \
    norm_apply_of(shape, x, stats, weight, bias, y);                                            \
  }                                                                                             \
  void norm_backward(const NormShape& shape, const T* dy, const T* x, const float* stats,       \
                     const T* weight, const T* residual, T* dx, float* dweight, float* dbias) { \
    norm_backward_of(shape, dy, x, stats, weight, residual, dx, dweight, dbias);                \
  }                                                                                             \
  void activation_forward(const ActivationShape& shape, const T* u, const T* bias, T* y) {      \
    activation_forward_of(shape, u, bias, y);                                                   \
  }                                                                                             \
  void activation_backward(const ActivationShape& shape, T* u, const T* bias, T* dy,            \
                           float* dbias) {                                                      \
    activation_backward_of(shape, u, bias, dy, dbias);                                          \
  }                                                                                             \
  void add_column_sums(int64_t rows, int64_t cols, const T* x, float* sums) {                   \
    add_column_sums_of(rows, cols, x, sums);                                                    \
  }                                                                                             \
  void accumulate(int64_t count, const T* x, float* sums) { accumulate_of(count, x, sums); }    \
  void add_residual(int64_t rows, int64_t cols, const T* x, const T* bias, T* y) {              \
    add_residual_of(rows, cols, x, bias, y);                                                    \
  }                                                                                             \
  void drop(const Dropout& dropout, int64_t rows, int64_t cols, const T* x, T* y) {             \
    drop_of(dropout, rows, cols, x, y);                                                         \
  }                                                                                             \
  void add_residual_dropped(const Dropout& dropout, int64_t rows, int64_t cols, const T* x,     \
                            const T* bias, T* y) {                                              \
    add_residual_dropped_of(dropout, rows, cols, x, bias, y);                                   \
  }

SMP_DEFINE(c10::BFloat16)
SMP_DEFINE(c10::Half)

}  // namespace smp::kernels
