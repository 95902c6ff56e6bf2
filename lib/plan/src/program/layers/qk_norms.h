#pragma once

#include <string>

#include "program/layers/parts.h"

namespace smp::program {

// The norms of queries and of keys over all heads (OLMoE, OLMo 2), on rows of [q heads | k heads |
// v heads]. Tensor ranks share the heads, and sum the squares of their columns. The rows are kept
// as they were, and normed again for the backward.
class QkNorms {
 public:
  // Norms `name`.q_norm and `name`.k_norm; there are none where each head has its own.
  QkNorms(ProgramBuilder& builder, const Region& region, const std::string& name);

  bool exist() const { return q_.weight != kNoValue; }

  ValueId forward(ValueId packed);
  ValueId again();
  // The gradient of the rows before the norms, in the memory of dy. Adds those of the weights.
  ValueId backward(ValueId dy);

 private:
  QkNormAttributes attributes() const;
  ValueId normed();

  ProgramBuilder& builder_;
  const Region& region_;
  NormParts q_, k_;
  ValueId packed_ = kNoValue, squares_ = kNoValue;  // what the forward has made
};

}  // namespace smp::program
