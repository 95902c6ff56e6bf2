#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "smp/plan/program/attributes.h"

// The operations of a mixture of experts that are not torch's own, by device
// (DeviceFunctions::experts()). Rows are sorted by expert and then by token. What lies behind the
// last expert's has no meaning. Choices are int32 [tokens, experts_per_token], best first; ~e for
// an expert e that did not take the token. Scores, weights and their gradients are wide.
namespace smp::kernels {

// What a router makes of its tokens.
struct RoutedTokens {
  at::Tensor scores;    // [tokens, experts]; they become probabilities
  at::Tensor chosen;    // [tokens, experts_per_token]
  at::Tensor weights;   // likewise
  at::Tensor log_sums;  // [tokens], logarithms of sums of exponentials of scores; may be undefined
};

// The gradients of a router's own losses.
struct RouterLossGradients {
  at::Tensor balance;  // wide, [segments, experts]: by each share of an expert in the sum of a
                       // token's probabilities; undefined without a balancing loss
  double z = 0;        // by the square of a token's log sum; 0 without a z loss
};

// The operands of the activation of experts' rows.
struct ExpertRows {
  at::Tensor up;       // [rows, ffn]
  at::Tensor gate;     // likewise; may be undefined
  at::Tensor weights;  // by place; undefined: rows are not weighed
  at::Tensor places;   // int32, where a row's weight is; undefined: row i has weight i
  int64_t count = 0;   // rows that have a meaning
};

// A bias of an expert, and the rows that have it.
struct ExpertBias {
  at::Tensor bias;             // [cols]; undefined where only its gradient is asked for
  at::Tensor weights, places;  // as above
  int64_t first = 0, rows = 0;
};

class ExpertFunctions {
 public:
  virtual ~ExpertFunctions() = default;

  // Chooses experts; of equal scores the first. `bias` [experts], wide, is added to the
  // probabilities that choose, and to nothing else; may be undefined. Beyond the capacity an expert
  // takes the tokens with the largest weights, the first of equal ones.
  virtual void route(const program::RouterAttributes& router, const at::Tensor& bias,
                     const RoutedTokens& routed) const = 0;
  // `routed` as route() has left it; probabilities become the gradients of the scores.
  virtual void route_backward(const program::RouterAttributes& router, const RoutedTokens& routed,
                              const at::Tensor& d_weights,
                              const RouterLossGradients& losses) const = 0;
  // New, fp64, [segments, experts]: the choices of each expert, taken or not, and the sums of its
  // shares in the tokens' probabilities. Segments have equally many tokens.
  virtual at::Tensor count_choices(const program::RouterAttributes& router,
                                   const at::Tensor& chosen, int64_t segments) const = 0;
  virtual at::Tensor sum_shares(const program::RouterAttributes& router,
                                const at::Tensor& probabilities, int64_t segments) const = 0;

  // Writes the choice of each row of the rank's experts, and the row of each choice, -1 where this
  // rank has none. Returns the ends of the experts' rows, on the host: int32, [experts.count].
  virtual at::Tensor sort_by_expert(const program::ExpertAttributes& experts,
                                    const at::Tensor& chosen, const at::Tensor& rows,
                                    const at::Tensor& places) const = 0;
  // y [used] = x[rows[i] / per_token].
  virtual void dispatch(const at::Tensor& x, const at::Tensor& rows, int64_t used,
                        int64_t per_token, const at::Tensor& y) const = 0;
  // y [tokens] = the sum of x[places[token]].
  virtual void combine(const at::Tensor& x, const at::Tensor& places,
                       const at::Tensor& y) const = 0;

  // Rows of an expert: y = x times weight^T, weight [out, in] or the transpose of a contiguous one;
  // gradient [out, in], wide, += dy^T x.
  virtual void product(const at::Tensor& x, const at::Tensor& weight, int64_t first, int64_t rows,
                       const at::Tensor& y) const = 0;
  virtual void add_product(const at::Tensor& dy, const at::Tensor& x, int64_t first, int64_t rows,
                           const at::Tensor& gradient) const = 0;
  // y += weight * bias in the rows, and the way back: gradient, wide, += the sums of weight * dy,
  // and d_weights, wide, += the products of dy and the bias, unless it is undefined.
  virtual void add_bias(const ExpertBias& bias, const at::Tensor& y) const = 0;
  virtual void bias_gradient(const ExpertBias& bias, const at::Tensor& dy,
                             const at::Tensor& gradient, const at::Tensor& d_weights) const = 0;

  // y = weight * activation(gate) * up, or without a gate weight * activation(up).
  virtual void activation_forward(const program::ActivationAttributes& activation,
                                  const ExpertRows& rows, const at::Tensor& y) const = 0;
  // The gradients of up and gate in their place, y in that of dy. d_weights by place is written,
  // unless it is undefined.
  virtual void activation_backward(const program::ActivationAttributes& activation,
                                   const ExpertRows& rows, const at::Tensor& dy,
                                   const at::Tensor& d_weights) const = 0;
};

}  // namespace smp::kernels
