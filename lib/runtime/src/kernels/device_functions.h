#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/attention.h"
#include "kernels/dropout.h"
#include "kernels/expert_functions.h"
#include "kernels/flat_range.h"
#include "kernels/kernels.h"
#include "smp/comm/communicator.h"

// The operations of layers and optimizer that are not torch's own, on contiguous tensors of fp64,
// fp32, bf16 or fp16. Matrices are [tokens, features]. With 16-bit tensors, statistics, sums and
// gradients of weights are fp32 ("wide"). A comment says so if a tensor may be undefined.
//
//                    layers, head, embedding, optimizer
//                                   |
//                      functions_of(tensor): by its device
//                       |                              |
//         CPU: loops (cpu_functions.h)       GPU: kernels (cuda/gpu_functions.h)
//
// Safe from any thread. On a GPU calls are asynchronous, in the order of the thread's current
// stream; a function that returns a number waits for it.
namespace smp::kernels {

struct AdamWFactors;
struct SgdFactors;
template <typename T>
struct UpdateRange;

// The inputs of attention: the rows of attention.h, and the small parameters.
struct AttentionInputs {
  at::Tensor packed;    // [n, q | k | v], or the queries alone
  at::Tensor kv;        // of the encoder output, [b * keys, k | v]; undefined: in `packed`
  at::Tensor bias;      // of the projection; may be undefined
  at::Tensor q_weight;  // of the heads' norms; undefined without them, and biases without LayerNorm
  at::Tensor q_bias;
  at::Tensor k_weight;
  at::Tensor k_bias;
  at::Tensor table;  // of relative positions; undefined without them
  at::Tensor sinks;  // [heads]; undefined without them
};

// Further gradients to which attention's backward adds; wide.
struct AttentionGradients {
  at::Tensor norms;  // [2 or 4, head_dim]: q's and k's weights, then their biases; may be undefined
  at::Tensor table;  // may be undefined
  at::Tensor sinks;  // may be undefined
};

// The weights of norms over all heads, or their gradients, which are wide.
struct QkNormTensors {
  at::Tensor q, k;  // [norm.q_cols] and [norm.k_cols]
};

// Statistics of the softmax of each row of logits, over the whole vocabulary; wide.
struct SoftmaxStatistics {
  at::Tensor maxima;  // [rows]
  at::Tensor sums;    // [2, rows]: sums of exponentials, then targets' logits, less the maximum
};

// Turns the statistics of a rank's part of the vocabulary into those of the whole, in place; empty
// if the rank has the whole vocabulary.
using SoftmaxExchange = std::function<void(const at::Tensor&, comm::ReduceOp)>;

class DeviceFunctions {
 public:
  virtual ~DeviceFunctions() = default;

  // kernels.h; y and stats are written, bias may be undefined. norm_backward: dy becomes residual
  // (may be undefined) + the gradient of x, and the weight's and bias's gradients are added to.
  virtual void norm_forward(const NormShape& shape, double epsilon, const at::Tensor& x,
                            const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& y,
                            const at::Tensor& stats) const = 0;
  virtual void norm_apply(const NormShape& shape, const at::Tensor& x, const at::Tensor& stats,
                          const at::Tensor& weight, const at::Tensor& bias,
                          const at::Tensor& y) const = 0;
  virtual void norm_backward(const NormShape& shape, const at::Tensor& dy, const at::Tensor& x,
                             const at::Tensor& stats, const at::Tensor& weight,
                             const at::Tensor& residual, const at::Tensor& weight_gradient,
                             const at::Tensor& bias_gradient) const = 0;

  // kernels.h; bias and its gradient may be undefined.
  virtual void activation_forward(const ActivationShape& shape, const at::Tensor& u,
                                  const at::Tensor& bias, const at::Tensor& y) const = 0;
  virtual void activation_backward(const ActivationShape& shape, const at::Tensor& u,
                                   const at::Tensor& bias, const at::Tensor& dy,
                                   const at::Tensor& bias_gradient) const = 0;

  // attention.h; `output` [n, heads * head_dim] and `log_sums` are written. Backward: the rows
  // become their own gradients.
  virtual void attention_forward(const AttentionShape& shape, const AttentionInputs& inputs,
                                 const at::Tensor& output, const at::Tensor& log_sums) const = 0;
  virtual void attention_backward(const AttentionShape& shape, const AttentionInputs& inputs,
                                  const at::Tensor& output, const at::Tensor& output_gradient,
                                  const at::Tensor& log_sums,
                                  const AttentionGradients& gradients) const = 0;

  // qk_norms.h; x and dy are rows [q heads | k heads | v heads], squares and sums wide [rows, 2].
  virtual void qk_squares(const program::QkNormAttributes& norm, const at::Tensor& x,
                          const at::Tensor& squares) const = 0;
  virtual void qk_norm(const program::QkNormAttributes& norm, const at::Tensor& x,
                       const at::Tensor& squares, const QkNormTensors& weights,
                       const at::Tensor& y) const = 0;
  virtual void qk_norm_sums(const program::QkNormAttributes& norm, const at::Tensor& dy,
                            const at::Tensor& x, const at::Tensor& squares,
                            const QkNormTensors& weights, const QkNormTensors& gradients,
                            const at::Tensor& sums) const = 0;
  virtual void qk_norm_backward(const program::QkNormAttributes& norm, const at::Tensor& dy,
                                const at::Tensor& x, const at::Tensor& squares,
                                const at::Tensor& sums, const QkNormTensors& weights) const = 0;

  // latent_heads.h; all of them matrices of the rank's heads.
  virtual void latent_heads(const program::LatentAttributes& widths, const at::Tensor& q,
                            const at::Tensor& kv, const at::Tensor& k_rotary,
                            const at::Tensor& packed) const = 0;
  virtual void latent_heads_backward(const program::LatentAttributes& widths,
                                     const at::Tensor& packed, const at::Tensor& q,
                                     const at::Tensor& kv, const at::Tensor& k_rotary) const = 0;

  // y = x where it is kept, times the factor, else 0; y may be x.
  virtual void drop(const Dropout& dropout, const at::Tensor& x, const at::Tensor& y) const = 0;
  // y = x + drop(y + bias); bias may be undefined, the dropout off.
  virtual void add_residual(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& y,
                            const Dropout& dropout) const = 0;
  // add_residual(), and norm_forward() of its sum into `normed` and `stats`.
  virtual void sum_and_norm(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& y,
                            const Dropout& dropout, const NormShape& shape, double epsilon,
                            const at::Tensor& weight, const at::Tensor& norm_bias,
                            const at::Tensor& normed, const at::Tensor& stats) const = 0;
  // sums [cols] += column sums of x; wide += x.
  virtual void add_column_sums(const at::Tensor& x, const at::Tensor& sums) const = 0;
  virtual void accumulate(const at::Tensor& x, const at::Tensor& sums) const = 0;

  // y[n] = table[ids[n] - begin], or zeros where the table has no such row; and the way back:
  // table[ids[n] - begin] += x[n], in the order of n.
  virtual void take_rows(const at::Tensor& ids, int64_t begin, const at::Tensor& table,
                         const at::Tensor& y) const = 0;
  virtual void add_rows(const at::Tensor& ids, int64_t begin, const at::Tensor& x,
                        const at::Tensor& table) const = 0;

  // x [n, in] times weight^T, weight [vocabulary, in]. Rows may begin further apart than they are
  // long: the same device's functions of logits and their gradient allow for that.
  virtual at::Tensor logits(const at::Tensor& x, const at::Tensor& weight) const = 0;
  // The mean cross-entropy of rows of logits, whose columns are the vocabulary entries from `begin`
  // on, over all rows; those of kNoTarget add nothing. Fills the statistics. Logits of 16 bits stay
  // as they are, for softmax_gradient(). Others are used up; with `makes_gradient` they become the
  // gradient of the loss.
  virtual double softmax_loss(const at::Tensor& logits, const at::Tensor& targets, int64_t begin,
                              const SoftmaxStatistics& statistics, const SoftmaxExchange& exchange,
                              bool makes_gradient) const = 0;
  // Logits of 16 bits become `scale` times the gradient of the loss.
  virtual void softmax_gradient(const at::Tensor& logits, const at::Tensor& targets, int64_t begin,
                                const SoftmaxStatistics& statistics, double scale) const = 0;

  // a [m, k] times b^T, b [n, k]; either may be the transpose of a contiguous tensor. The result is
  // a tensor of its own.
  virtual at::Tensor product(const at::Tensor& a, const at::Tensor& b) const = 0;
  // gradient [out, in], wide, += scale * dy^T x; the sum over the tokens is wide.
  virtual void add_product(const at::Tensor& dy, const at::Tensor& x, double scale,
                           const at::Tensor& gradient) const = 0;

  virtual const ExpertFunctions& experts() const = 0;

  // update_rule.h; the pointers of a range are to the device's memory.
  virtual void adamw_update(const AdamWFactors& factors, const UpdateRange<float>& range) const = 0;
  virtual void adamw_update(const AdamWFactors& factors,
                            const UpdateRange<double>& range) const = 0;
  virtual void sgd_update(const SgdFactors& factors, const UpdateRange<float>& range) const = 0;
  virtual void sgd_update(const SgdFactors& factors, const UpdateRange<double>& range) const = 0;
  // Sums of the squares of ranges of `values`, fp32 or fp64: `sums`, fp64 and of the same device,
  // gets count_square_sums() for each range, one range after the other, to be added in this order,
  // and behind them the sum of all. Nothing else changes the order in which elements are added.
  virtual int64_t count_square_sums(const FlatRange& range) const = 0;
  virtual void sum_squares(const at::Tensor& values, const std::vector<FlatRange>& ranges,
                           const at::Tensor& sums) const = 0;
};

// The number of sums that sum_squares() writes for these ranges, with the total.
int64_t count_square_sums(const DeviceFunctions& device, const std::vector<FlatRange>& ranges);
// Adds the sums on the host: one for each range, then the total.
std::vector<double> sums_of_ranges(const DeviceFunctions& device,
                                   const std::vector<FlatRange>& ranges, const double* sums);

// The functions of the tensor's device. CPU functions are built in; a GPU's are set by
// set_functions().
const DeviceFunctions& functions_of(const at::Tensor& tensor);

// Sets the functions of a device type; they must live until they are replaced. nullptr restores the
// built-in ones. Must not be called while layers compute.
void set_functions(c10::DeviceType device, const DeviceFunctions* functions);

}  // namespace smp::kernels
