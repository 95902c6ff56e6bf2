#pragma once

#include <cstdint>
#include <vector>

#include "cuda/heads_body.h"
#include "cuda/qk_norm_body.h"
#include "cuda/scores_body.h"
#include "cuda/softmax_body.h"
#include "kernels/adamw_kernel.h"
#include "kernels/flat_range.h"
#include "kernels/kernels.h"
#include "kernels/sgd_kernel.h"

// Launches the kernels' bodies on a Runner. Launches run in the order of the calls; a call returns
// before its work is done. A Runner has
//   Block                 the type that a body runs on (block.h)
//   kThreadsOfBlock       threads of a block
//   run(blocks, body)     runs body(block) on all threads of up to `blocks` blocks
//   run_warps(n, body)    runs body(block) on up to n warps, each one a Block
// On a GPU the Runner is DeviceRunner, whose launches nvcc compiles; tests have a Runner of host
// threads. Pointers point to device memory. T is float, double, bf16 or fp16. The bodies' headers
// document the computations. All functions throw std::runtime_error if a launch fails. The caller
// allocates scratch.
namespace smp::cuda {

template <typename Runner, typename T>
class Launches {
 public:
  explicit Launches(const Runner& runner) : runner_(runner) {}

  void norm_forward(const kernels::NormShape& shape, kernels::Wide<T> epsilon, const T* x,
                    const T* weight, const T* bias, T* y, kernels::Wide<T>* stats) const;
  void norm_apply(const kernels::NormShape& shape, const T* x, const kernels::Wide<T>* stats,
                  const T* weight, const T* bias, T* y) const;
  // Adds to dweight and dbias; dx may be dy. Scratch: column_sums_scratch().
  void norm_backward(const kernels::NormShape& shape, const T* dy, const T* x,
                     const kernels::Wide<T>* stats, const T* weight, const T* residual, T* dx,
                     kernels::Wide<T>* dweight, kernels::Wide<T>* dbias,
                     kernels::Wide<T>* scratch) const;

  void activation_forward(const kernels::ActivationShape& shape, const T* u, const T* bias,
                          T* y) const;
  // Adds to dbias, unless bias is null. Scratch: column_sums_scratch() of u.
  void activation_backward(const kernels::ActivationShape& shape, T* u, const T* bias, T* dy,
                           kernels::Wide<T>* dbias, kernels::Wide<T>* scratch) const;

  // sums += the column sums of x, whose rows begin `stride` elements apart.
  void add_column_sums(int64_t rows, int64_t cols, int64_t stride, const T* x,
                       kernels::Wide<T>* sums, kernels::Wide<T>* scratch) const;
  void accumulate(int64_t count, const T* x, kernels::Wide<T>* sums) const;
  void add_residual(int64_t rows, int64_t cols, const T* x, const T* bias, T* y) const;

  void take_rows(int64_t count, int64_t cols, int64_t begin, int64_t table_rows, const int64_t* ids,
                 const T* table, T* y) const;
  void add_rows(int64_t count, int64_t cols, int64_t begin, int64_t table_rows,
                const int64_t* sorted, const int64_t* order, const T* x,
                kernels::Wide<T>* table) const;

  void softmax_sums(const LogitRows& shape, const T* logits, kernels::Wide<T>* maxima,
                    kernels::Wide<T>* sums, kernels::Wide<T>* own) const;
  void finish_softmax_sums(const LogitRows& shape, const T* logits, const kernels::Wide<T>* maxima,
                           kernels::Wide<T>* sums, kernels::Wide<T>* own) const;
  void softmax_gradient(const LogitRows& shape, const kernels::Wide<T>* maxima,
                        const kernels::Wide<T>* sums, kernels::Wide<T> scale, T* logits) const;

  // turns [turns_of(shape)].
  void fill_turns(const kernels::AttentionShape& shape, kernels::Wide<T>* turns) const;
  // R: T or wide.
  template <typename R>
  void unpack_heads(const kernels::AttentionShape& shape, const T* rows,
                    const HeadTensor<T, R>& tensor) const;
  // Adds to the norm's gradients, if there is a norm. Scratch: column_sums_scratch() of the
  // tensor's head rows.
  template <typename R>
  void pack_gradients(const kernels::AttentionShape& shape, const HeadTensor<T, R>& tensor,
                      kernels::Wide<T>* dweight, kernels::Wide<T>* dbias, T* rows,
                      kernels::Wide<T>* scratch) const;

  // Norms over all heads; weights in T. qk_norm_sums adds to the weights' gradients. Scratch:
  // column_sums_scratch() of the wider of queries and keys.
  void qk_squares(const program::QkNormAttributes& norm, int64_t rows, int64_t cols, const T* x,
                  kernels::Wide<T>* squares) const;
  void qk_norm(const program::QkNormAttributes& norm, int64_t rows, int64_t cols, const T* x,
               const kernels::Wide<T>* squares, const QkWeightPointers<T>& weights, T* y) const;
  void qk_norm_sums(const program::QkNormAttributes& norm, int64_t rows, int64_t cols, const T* dy,
                    const T* x, const kernels::Wide<T>* squares, const QkWeightPointers<T>& weights,
                    kernels::Wide<T>* q_gradient, kernels::Wide<T>* k_gradient,
                    kernels::Wide<T>* sums, kernels::Wide<T>* scratch) const;
  void qk_norm_backward(const program::QkNormAttributes& norm, int64_t rows, int64_t cols, T* dy,
                        const T* x, const kernels::Wide<T>* squares, const kernels::Wide<T>* sums,
                        const QkWeightPointers<T>& weights) const;
  // kernels/latent_heads.h
  void latent_heads(const program::LatentAttributes& widths, int64_t rows, const T* q, const T* kv,
                    const T* k_rotary, T* packed) const;
  void latent_heads_backward(const program::LatentAttributes& widths, int64_t rows, const T* packed,
                             T* q, T* kv, T* k_rotary) const;

  void drop(const kernels::Dropout& dropout, int64_t rows, int64_t cols, const T* x, T* y) const;
  void add_residual_dropped(const kernels::Dropout& dropout, int64_t rows, int64_t cols, const T* x,
                            const T* bias, T* y) const;

  void softmax_scores(const kernels::AttentionShape& shape, const ScoreRows& rows,
                      const kernels::Wide<T>* diagonals, const kernels::Wide<T>* sinks,
                      kernels::Wide<T>* scores, kernels::Wide<T>* log_sums) const;
  void softmax_scores_backward(const kernels::AttentionShape& shape, const ScoreRows& rows,
                               const kernels::Wide<T>* diagonals, const T* output,
                               const T* output_gradient, const kernels::Wide<T>* log_sums,
                               kernels::Wide<T>* scores, kernels::Wide<T>* gradients) const;

  void fill_diagonals(const kernels::AttentionShape& shape, const T* table,
                      kernels::Wide<T>* diagonals) const;
  void add_to_diagonals(const kernels::AttentionShape& shape, const ScoreRows& rows,
                        const kernels::Wide<T>* gradients, kernels::Wide<T>* diagonals) const;
  void add_to_table(const kernels::AttentionShape& shape, const kernels::Wide<T>* diagonals,
                    kernels::Wide<T>* table) const;

  // Number of elements.
  static int64_t column_sums_scratch(int64_t rows, int64_t cols);

 private:
  const Runner& runner_;
};

// Launches on flat buffers. T: float or double.
template <typename Runner, typename T>
class FlatLaunches {
 public:
  explicit FlatLaunches(const Runner& runner) : runner_(runner) {}

  void adamw_update(const kernels::AdamWFactors& factors,
                    const kernels::UpdateRange<T>& range) const;
  void sgd_update(const kernels::SgdFactors& factors, const kernels::UpdateRange<T>& range) const;
  // sums: count_partials(count) partial sums for each range, then the total.
  void sum_squares(const T* values, const std::vector<kernels::FlatRange>& ranges,
                   double* sums) const;
  static int64_t count_partials(int64_t count);

 private:
  const Runner& runner_;
};

}  // namespace smp::cuda
