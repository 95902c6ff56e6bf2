#pragma once

#include <string>

#include "program/layers/region.h"

// The parts of layers: norms, dropout, products with their gradients.
namespace smp::program {

struct NormParts {
  ValueId weight = kNoValue;
  ValueId bias = kNoValue;  // LayerNorm has one, RMSNorm has not
  NormAttributes attributes = {};
};
NormParts norm_parts(ProgramBuilder& builder, const std::string& name);
// Of a branch: "attention_norm", "mlp_norm". A layer of a hybrid has one norm, whatever its mixer.
NormParts branch_norm_parts(ProgramBuilder& builder, const std::string& name);

struct Normed {
  ValueId y = kNoValue;
  ValueId stats = kNoValue;  // mean and 1/deviation of each row; RMSNorm: 1/rms
};
Normed norm(ProgramBuilder& builder, const NormParts& parts, ValueId x, const std::string& name);
// y again.
ValueId norm_again(ProgramBuilder& builder, const NormParts& parts, ValueId x, ValueId stats,
                   const std::string& name);
// residual + the gradient of x, in the memory of dy; residual may be kNoValue. If x has this rank's
// tokens alone (`of_own_tokens`), the ranks sum the gradients of the norm's parameters.
ValueId norm_backward(ProgramBuilder& builder, const NormParts& parts, ValueId dy, ValueId x,
                      ValueId stats, ValueId residual, bool of_own_tokens, const std::string& name);

// x with dropout: a new value, or x itself if there is none; or in the memory of x.
ValueId dropped(ProgramBuilder& builder, ValueId x, const DropoutAttributes& dropout);
ValueId drop_in_place(ProgramBuilder& builder, ValueId x, const DropoutAttributes& dropout);
// Of a layer's hidden state, of this rank's tokens.
DropoutAttributes hidden_dropout(const ProgramBuilder& builder, const Region& region,
                                 DropoutSite site);

// x [n, in] times weight^T, weight [out, in].
ValueId product(ProgramBuilder& builder, ValueId x, ValueId weight, const std::string& name,
                Dim cols);
// dy [n, out] times weight. `factor`, a number of the call, may be kNoValue.
ValueId input_gradient(ProgramBuilder& builder, ValueId dy, ValueId weight, const std::string& name,
                       Dim cols, double scale = 1, ValueId factor = kNoValue);
// Adds scale * dy^T x to the weight's gradient.
void weight_gradient(ProgramBuilder& builder, ValueId dy, ValueId x, ValueId weight,
                     double scale = 1, ValueId factor = kNoValue);
// y + bias in the memory of y; y itself without a bias.
ValueId add_bias(ProgramBuilder& builder, ValueId y, ValueId bias);
void bias_gradient(ProgramBuilder& builder, ValueId dy, ValueId bias);

// residual + dropout of (y + bias), in the memory of y. `branch` is the name of the branch's norm;
// where a model has one behind the branch as well, it comes before the dropout.
ValueId add_branch(ProgramBuilder& builder, const std::string& branch, ValueId residual, ValueId y,
                   ValueId bias, const DropoutAttributes& dropout, const std::string& name);
// Of context-parallel ranks: parts of sequences against columns, where an operation needs whole
// sequences. x itself where there is one rank.
ValueId to_context_ranks(ProgramBuilder& builder, ValueId x);
// `sum` += x, in the memory of `sum`; x itself where there is nothing yet.
ValueId add_to(ProgramBuilder& builder, ValueId sum, ValueId x);

}  // namespace smp::program
