#pragma once

#include <cmath>

#include "smp/plan/model/operators.h"
#include "smp/plan/spec/job_spec.h"

// How far a loss of 16-bit elements, and its gradients, may be from those of fp32.
namespace smp::parity {

// Tensors between the batch and the loss that are rounded. Each block writes eight, one that
// attends to an encoder twelve, embedding and head two each; in a list each operator writes one,
// and one with a matrix two: the product, and with its bias.
inline double rounded_tensors(const ModelSpec& model) {
  if (!model::is_list(model)) {
    return static_cast<double>(8 * model.num_layers + 12 * model.decoder_layers + 4);
  }
  double tensors = 1;  // the images
  for (const OperatorSpec& spec : model.operators) {
    tensors += model::rules_of(spec.kind).has_matrix ? 2 : 1;
  }
  return tensors;
}

// Every element of these is rounded by at most u, independently, so a logit is off by about
// u sqrt(tensors) of its size, and the loss by no more.
inline double narrow_loss(Precision precision, const ModelSpec& model) {
  const double unit_roundoff = precision == Precision::kBf16 ? 0x1p-8 : 0x1p-11;
  return unit_roundoff * std::sqrt(rounded_tensors(model));
}

// How far the gradients of a batch together may be, relative to their norm. They pass as many
// rounded tensors again on the way back, and on both ways the matrices are rounded, too: one for
// every two tensors. A router may choose other experts for a token whose scores are nearly equal:
// of independent tokens, one has 1 / sqrt(tokens) of the norm.
inline double narrow_gradient(Precision precision, const ModelSpec& model, double tokens) {
  const double rounded = std::sqrt(3) * narrow_loss(precision, model);
  return model.num_experts > 0 ? std::hypot(rounded, 1 / std::sqrt(tokens)) : rounded;
}

}  // namespace smp::parity
