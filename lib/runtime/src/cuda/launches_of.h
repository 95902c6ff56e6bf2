#pragma once

#include <type_traits>

#include "cuda/activation_body.h"
#include "cuda/column_sums_body.h"
#include "cuda/dropout_body.h"
#include "cuda/latent_body.h"
#include "cuda/launches.h"
#include "cuda/launching.h"
#include "cuda/norm_body.h"
#include "cuda/relative_body.h"
#include "cuda/rows_body.h"
#include "cuda/scores_body.h"
#include "cuda/softmax_body.h"

// Definitions of Launches (launches.h). Include this file once per Runner.
namespace smp::cuda {

template <typename Runner, typename C, typename Value>
void launch_column_sums(const Runner& runner, int64_t rows, int64_t cols, const Value& value,
                        C* total, C* scratch) {
  runner.run(blocks_of<Runner>(partials_of(rows) * cols),
             [=] SMP_BODY(typename Runner::Block & block) {
               column_partials(block, rows, cols, value, scratch);
             });
  runner.run_warps(cols, [=] SMP_BODY(typename Runner::Block & block) {
    add_partials(block, partials_of(rows), cols, scratch, total);
  });
}

// Calls body with the activation as a std::integral_constant.
template <typename Body>
void with_activation(kernels::ActivationKind activation, const Body& body) {
  switch (activation) {
    case kernels::ActivationKind::kGelu:
      return body(
          std::integral_constant<kernels::ActivationKind, kernels::ActivationKind::kGelu>());
    case kernels::ActivationKind::kGeluErf:
      return body(
          std::integral_constant<kernels::ActivationKind, kernels::ActivationKind::kGeluErf>());
    case kernels::ActivationKind::kGeluSigmoid:
      return body(
          std::integral_constant<kernels::ActivationKind, kernels::ActivationKind::kGeluSigmoid>());
    case kernels::ActivationKind::kRelu:
      return body(
          std::integral_constant<kernels::ActivationKind, kernels::ActivationKind::kRelu>());
    case kernels::ActivationKind::kSilu:
      return body(
          std::integral_constant<kernels::ActivationKind, kernels::ActivationKind::kSilu>());
  }
}

template <kernels::ActivationKind kKind, typename Runner, typename T>
void launch_activation(const Runner& runner, const kernels::ActivationShape& shape, const T* u,
                       const T* bias, T* y) {
  runner.run(blocks_of_strips<Runner, T>(shape.rows * shape.cols),
             [=] SMP_BODY(typename Runner::Block & block) {
               activation_forward<kKind>(block, shape, u, bias, y);
             });
}

template <kernels::ActivationKind kKind, typename Runner, typename T>
void launch_activation_backward(const Runner& runner, const kernels::ActivationShape& shape, T* u,
                                const T* bias, T* dy) {
  runner.run(blocks_of_strips<Runner, T>(shape.rows * shape.cols),
             [=] SMP_BODY(typename Runner::Block & block) {
               activation_backward<kKind>(block, shape, u, bias, dy);
             });
}

template <typename Runner, typename T>
int64_t Launches<Runner, T>::column_sums_scratch(int64_t rows, int64_t cols) {
  return partials_of(rows) * cols;
}

template <typename Runner, typename T>
void Launches<Runner, T>::norm_forward(const kernels::NormShape& shape, kernels::Wide<T> epsilon,
                                       const T* x, const T* weight, const T* bias, T* y,
                                       kernels::Wide<T>* stats) const {
  run_rows(runner_, shape.rows, shape.cols, [=] SMP_BODY(typename Runner::Block & block) {
    cuda::norm_forward(block, shape, epsilon, x, weight, bias, y, stats);
  });
}

template <typename Runner, typename T>
void Launches<Runner, T>::norm_apply(const kernels::NormShape& shape, const T* x,
                                     const kernels::Wide<T>* stats, const T* weight, const T* bias,
                                     T* y) const {
  run_rows(runner_, shape.rows, shape.cols, [=] SMP_BODY(typename Runner::Block & block) {
    cuda::norm_apply(block, shape, x, stats, weight, bias, y);
  });
}

template <typename Runner, typename T>
void Launches<Runner, T>::norm_backward(const kernels::NormShape& shape, const T* dy, const T* x,
                                        const kernels::Wide<T>* stats, const T* weight,
                                        const T* residual, T* dx, kernels::Wide<T>* dweight,
                                        kernels::Wide<T>* dbias, kernels::Wide<T>* scratch) const {
  const int64_t cols = shape.cols;
  launch_column_sums(
      runner_, shape.rows, cols,
      [=] SMP_BODY(int64_t row, int64_t col) {
        return norm_weight_term(shape, dy, x, stats, row, col);
      },
      dweight, scratch);
  if (dbias != nullptr) add_column_sums(shape.rows, cols, cols, dy, dbias, scratch);
  run_rows(runner_, shape.rows, cols, [=] SMP_BODY(typename Runner::Block & block) {
    norm_input_gradient(block, shape, dy, x, stats, weight, residual, dx);
  });
}

template <typename Runner, typename T>
void Launches<Runner, T>::activation_forward(const kernels::ActivationShape& shape, const T* u,
                                             const T* bias, T* y) const {
  with_activation(shape.activation, [&](auto kind) {
    launch_activation<decltype(kind)::value>(runner_, shape, u, bias, y);
  });
}

template <typename Runner, typename T>
void Launches<Runner, T>::activation_backward(const kernels::ActivationShape& shape, T* u,
                                              const T* bias, T* dy, kernels::Wide<T>* dbias,
                                              kernels::Wide<T>* scratch) const {
  with_activation(shape.activation, [&](auto kind) {
    launch_activation_backward<decltype(kind)::value>(runner_, shape, u, bias, dy);
  });
  if (bias == nullptr) return;
  const int64_t cols = shape.gated ? 2 * shape.cols : shape.cols;
  add_column_sums(shape.rows, cols, cols, shape.gated ? u : dy, dbias, scratch);
}

template <typename Runner, typename T>
void Launches<Runner, T>::add_column_sums(int64_t rows, int64_t cols, int64_t stride, const T* x,
                                          kernels::Wide<T>* sums, kernels::Wide<T>* scratch) const {
  launch_column_sums(
      runner_, rows, cols,
      [=] SMP_BODY(int64_t row, int64_t col) { return kernels::Wide<T>(x[row * stride + col]); },
      sums, scratch);
}

template <typename Runner, typename T>
void Launches<Runner, T>::accumulate(int64_t count, const T* x, kernels::Wide<T>* sums) const {
  runner_.run(blocks_of_strips<Runner, T>(count), [=] SMP_BODY(typename Runner::Block & block) {
    cuda::accumulate(block, count, x, sums);
  });
}

template <typename Runner, typename T>
void Launches<Runner, T>::add_residual(int64_t rows, int64_t cols, const T* x, const T* bias,
                                       T* y) const {
  runner_.run(blocks_of_strips<Runner, T>(rows * cols),
              [=] SMP_BODY(typename Runner::Block & block) {
                cuda::add_residual(block, rows, cols, x, bias, y);
              });
}

template <typename Runner, typename T>
void Launches<Runner, T>::take_rows(int64_t count, int64_t cols, int64_t begin, int64_t table_rows,
                                    const int64_t* ids, const T* table, T* y) const {
  runner_.run(blocks_of_strips<Runner, T>(count * cols),
              [=] SMP_BODY(typename Runner::Block & block) {
                cuda::take_rows(block, count, cols, begin, table_rows, ids, table, y);
              });
}

template <typename Runner, typename T>
void Launches<Runner, T>::add_rows(int64_t count, int64_t cols, int64_t begin, int64_t table_rows,
                                   const int64_t* sorted, const int64_t* order, const T* x,
                                   kernels::Wide<T>* table) const {
  runner_.run(count, [=] SMP_BODY(typename Runner::Block & block) {
    cuda::add_rows(block, count, cols, begin, table_rows, sorted, order, x, table);
  });
}

template <typename Runner, typename T>
void Launches<Runner, T>::softmax_sums(const LogitRows& shape, const T* logits,
                                       kernels::Wide<T>* maxima, kernels::Wide<T>* sums,
                                       kernels::Wide<T>* own) const {
  runner_.run(shape.rows, [=] SMP_BODY(typename Runner::Block & block) {
    cuda::softmax_sums(block, shape, logits, maxima, sums, own);
  });
}

template <typename Runner, typename T>
void Launches<Runner, T>::finish_softmax_sums(const LogitRows& shape, const T* logits,
                                              const kernels::Wide<T>* maxima,
                                              kernels::Wide<T>* sums, kernels::Wide<T>* own) const {
  runner_.run(blocks_of<Runner>(shape.rows), [=] SMP_BODY(typename Runner::Block & block) {
    cuda::finish_softmax_sums(block, shape, logits, maxima, sums, own);
  });
}

template <typename Runner, typename T>
void Launches<Runner, T>::softmax_gradient(const LogitRows& shape, const kernels::Wide<T>* maxima,
                                           const kernels::Wide<T>* sums, kernels::Wide<T> scale,
                                           T* logits) const {
  runner_.run(shape.rows, [=] SMP_BODY(typename Runner::Block & block) {
    cuda::softmax_gradient(block, shape, maxima, sums, scale, logits);
  });
}

template <typename Runner, typename T>
void Launches<Runner, T>::fill_turns(const kernels::AttentionShape& shape,
                                     kernels::Wide<T>* turns) const {
  runner_.run(blocks_of<Runner>(turns_of(shape) / 2), [=] SMP_BODY(typename Runner::Block & block) {
    cuda::fill_turns(block, shape, turns);
  });
}

template <typename Runner, typename T>
template <typename R>
void Launches<Runner, T>::unpack_heads(const kernels::AttentionShape& shape, const T* rows,
                                       const HeadTensor<T, R>& tensor) const {
  const int64_t count = shape.batch * tensor.sequence * tensor.heads, d = tensor.dim;
  if (tensor.has_norm()) {
    runner_.run_warps(count, [=] SMP_BODY(typename Runner::Block & block) {
      unpack_normed_heads(block, shape, rows, tensor);
    });
  } else {
    runner_.run(blocks_of_strips<Runner, T>(count * d),
                [=] SMP_BODY(typename Runner::Block & block) {
                  cuda::unpack_heads(block, shape, rows, tensor);
                });
  }
}

template <typename Runner, typename T>
template <typename R>
void Launches<Runner, T>::pack_gradients(const kernels::AttentionShape& shape,
                                         const HeadTensor<T, R>& tensor, kernels::Wide<T>* dweight,
                                         kernels::Wide<T>* dbias, T* rows,
                                         kernels::Wide<T>* scratch) const {
  const int64_t count = shape.batch * tensor.sequence * tensor.heads, d = tensor.dim;
  if (!tensor.has_norm()) {
    runner_.run(blocks_of_strips<Runner, T>(count * d),
                [=] SMP_BODY(typename Runner::Block & block) {
                  cuda::pack_gradients(block, shape, tensor, rows);
                });
    return;
  }
  if (dweight != nullptr) {
    launch_column_sums(
        runner_, count, d,
        [=] SMP_BODY(int64_t row, int64_t col) {
          return head_norm_term(shape, rows, tensor, row, col).of_weight;
        },
        dweight, scratch);
  }
  if (dbias != nullptr) {
    launch_column_sums(
        runner_, count, d,
        [=] SMP_BODY(int64_t row, int64_t col) {
          return head_norm_term(shape, rows, tensor, row, col).of_bias;
        },
        dbias, scratch);
  }
  runner_.run_warps(count, [=] SMP_BODY(typename Runner::Block & block) {
    pack_normed_gradients(block, shape, tensor, rows);
  });
}

template <typename Runner, typename T>
void Launches<Runner, T>::qk_squares(const program::QkNormAttributes& norm, int64_t rows,
                                     int64_t cols, const T* x, kernels::Wide<T>* squares) const {
  run_rows(runner_, 2 * rows, norm.q_cols, [=] SMP_BODY(typename Runner::Block & block) {
    cuda::qk_squares(block, norm, rows, cols, x, squares);
  });
}

template <typename Runner, typename T>
void Launches<Runner, T>::qk_norm(const program::QkNormAttributes& norm, int64_t rows, int64_t cols,
                                  const T* x, const kernels::Wide<T>* squares,
                                  const QkWeightPointers<T>& weights, T* y) const {
  runner_.run(blocks_of<Runner>(rows * cols), [=] SMP_BODY(typename Runner::Block & block) {
    cuda::qk_norm(block, norm, rows, cols, x, squares, weights, y);
  });
}

template <typename Runner, typename T>
void Launches<Runner, T>::qk_norm_sums(const program::QkNormAttributes& norm, int64_t rows,
                                       int64_t cols, const T* dy, const T* x,
                                       const kernels::Wide<T>* squares,
                                       const QkWeightPointers<T>& weights,
                                       kernels::Wide<T>* q_gradient, kernels::Wide<T>* k_gradient,
                                       kernels::Wide<T>* sums, kernels::Wide<T>* scratch) const {
  for (int64_t which = 0; which < 2; ++which) {
    launch_column_sums(
        runner_, rows, qk_columns(norm, which).count,
        [=] SMP_BODY(int64_t row, int64_t col) {
          return qk_weight_term(norm, which, cols, dy, x, squares, row, col);
        },
        which == 0 ? q_gradient : k_gradient, scratch);
  }
  run_rows(runner_, 2 * rows, norm.q_cols, [=] SMP_BODY(typename Runner::Block & block) {
    cuda::qk_norm_sums(block, norm, rows, cols, dy, x, squares, weights, sums);
  });
}

template <typename Runner, typename T>
void Launches<Runner, T>::qk_norm_backward(const program::QkNormAttributes& norm, int64_t rows,
                                           int64_t cols, T* dy, const T* x,
                                           const kernels::Wide<T>* squares,
                                           const kernels::Wide<T>* sums,
                                           const QkWeightPointers<T>& weights) const {
  runner_.run(blocks_of<Runner>(rows * (norm.q_cols + norm.k_cols)),
              [=] SMP_BODY(typename Runner::Block & block) {
                cuda::qk_norm_backward(block, norm, rows, cols, dy, x, squares, sums, weights);
              });
}

template <typename Runner, typename T>
void Launches<Runner, T>::latent_heads(const program::LatentAttributes& widths, int64_t rows,
                                       const T* q, const T* kv, const T* k_rotary,
                                       T* packed) const {
  const int64_t cols = widths.heads * (2 * widths.head_dim() + widths.value);
  runner_.run(blocks_of<Runner>(rows * cols), [=] SMP_BODY(typename Runner::Block & block) {
    join_latent_heads(block, widths, rows, q, kv, k_rotary, packed);
  });
}

template <typename Runner, typename T>
void Launches<Runner, T>::latent_heads_backward(const program::LatentAttributes& widths,
                                                int64_t rows, const T* packed, T* q, T* kv,
                                                T* k_rotary) const {
  const int64_t cols =
      widths.heads * (widths.head_dim() + widths.plain + widths.value) + widths.rotary;
  runner_.run(blocks_of<Runner>(rows * cols), [=] SMP_BODY(typename Runner::Block & block) {
    part_latent_heads(block, widths, rows, packed, q, kv, k_rotary);
  });
}

template <typename Runner, typename T>
void Launches<Runner, T>::drop(const kernels::Dropout& dropout, int64_t rows, int64_t cols,
                               const T* x, T* y) const {
  runner_.run(blocks_of_strips<Runner, T>(rows * cols),
              [=] SMP_BODY(typename Runner::Block & block) {
                cuda::drop(block, dropout, rows, cols, x, y);
              });
}

template <typename Runner, typename T>
void Launches<Runner, T>::add_residual_dropped(const kernels::Dropout& dropout, int64_t rows,
                                               int64_t cols, const T* x, const T* bias,
                                               T* y) const {
  runner_.run(blocks_of_strips<Runner, T>(rows * cols),
              [=] SMP_BODY(typename Runner::Block & block) {
                cuda::add_residual_dropped(block, dropout, rows, cols, x, bias, y);
              });
}

template <typename Runner, typename T>
void Launches<Runner, T>::softmax_scores(const kernels::AttentionShape& shape,
                                         const ScoreRows& rows, const kernels::Wide<T>* diagonals,
                                         const kernels::Wide<T>* sinks, kernels::Wide<T>* scores,
                                         kernels::Wide<T>* log_sums) const {
  runner_.run(rows.rows(), [=] SMP_BODY(typename Runner::Block & block) {
    cuda::softmax_scores(block, shape, rows, diagonals, sinks, scores, log_sums);
  });
}

template <typename Runner, typename T>
void Launches<Runner, T>::softmax_scores_backward(
    const kernels::AttentionShape& shape, const ScoreRows& rows, const kernels::Wide<T>* diagonals,
    const T* output, const T* output_gradient, const kernels::Wide<T>* log_sums,
    kernels::Wide<T>* scores, kernels::Wide<T>* gradients) const {
  runner_.run(rows.rows(), [=] SMP_BODY(typename Runner::Block & block) {
    cuda::softmax_scores_backward(block, shape, rows, diagonals, output, output_gradient, log_sums,
                                  scores, gradients);
  });
}

template <typename Runner, typename T>
void Launches<Runner, T>::fill_diagonals(const kernels::AttentionShape& shape, const T* table,
                                         kernels::Wide<T>* diagonals) const {
  const BucketBounds bounds = bounds_of(shape);
  runner_.run(blocks_of<Runner>(shape.heads * shape.distances()),
              [=] SMP_BODY(typename Runner::Block & block) {
                cuda::fill_diagonals(block, shape, bounds, table, diagonals);
              });
}

template <typename Runner, typename T>
void Launches<Runner, T>::add_to_diagonals(const kernels::AttentionShape& shape,
                                           const ScoreRows& rows, const kernels::Wide<T>* gradients,
                                           kernels::Wide<T>* diagonals) const {
  runner_.run(blocks_of<Runner>(shape.kv_heads * shape.distances()),
              [=] SMP_BODY(typename Runner::Block & block) {
                cuda::add_to_diagonals(block, shape, rows, gradients, diagonals);
              });
}

template <typename Runner, typename T>
void Launches<Runner, T>::add_to_table(const kernels::AttentionShape& shape,
                                       const kernels::Wide<T>* diagonals,
                                       kernels::Wide<T>* table) const {
  const BucketBounds bounds = bounds_of(shape);
  runner_.run(blocks_of<Runner>(shape.relative_buckets * shape.heads),
              [=] SMP_BODY(typename Runner::Block & block) {
                cuda::add_to_table(block, shape, bounds, diagonals, table);
              });
}

}  // namespace smp::cuda
