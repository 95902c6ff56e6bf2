#pragma once

#include "program/layers/region.h"

namespace smp::program {

// Vocabulary-parallel cross-entropy: the mean over the rows of logits [rows, this rank's part of
// the vocabulary]. One buffer holds the logits, then their exponentials, then the gradient of the
// loss by the logits. With 16-bit logits the statistics are saved in fp32 instead, and the backward
// computes the gradient with the loss scale: 1 / rows without the scale would underflow in fp16.
class CrossEntropy {
 public:
  CrossEntropy(ProgramBuilder& builder, const LossAttributes& attributes)
      : builder_(builder), attributes_(attributes) {}

  // The loss.
  ValueId forward(ValueId logits, ValueId targets);
  // The gradient of the logits; `loss_gradient` is the loss's. `factor` becomes what is still to be
  // multiplied: 16-bit logits have used it up, wide ones leave it to the next product.
  ValueId backward(ValueId loss_gradient, ValueId& factor);

 private:
  ProgramBuilder& builder_;
  const LossAttributes attributes_;
  ValueId targets_ = kNoValue, logits_ = kNoValue;
  ValueId maxima_ = kNoValue, sums_ = kNoValue;
};

// x times a constant and a number of the call, which may be absent, in the memory of x.
ValueId scaled(ProgramBuilder& builder, ValueId x, ValueId factor, double scale = 1);

}  // namespace smp::program
