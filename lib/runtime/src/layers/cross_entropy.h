#pragma once

#include "kernels/tensors.h"
#include "smp/runtime/layers/layer.h"

namespace smp::layers {

// The mean cross-entropy with which a model ends, of logits [rows, this rank's part of the
// vocabulary]. One buffer holds the logits, then their exponentials, then the gradient of the loss
// by the logits. Of 16-bit logits the statistics are kept in fp32 instead, and the gradient is made
// in backward, where the scale of the loss is known: 1 / rows alone would be lost to fp16.
class CrossEntropy {
 public:
  // `begin`: the first entry of the vocabulary of this rank's part.
  CrossEntropy(int64_t begin, const kernels::TensorRegion& region)
      : begin_(begin), region_(region) {}

  // Uses up the logits and fills `statistics`; appends to `saved` what gradient() needs, which may
  // be null.
  double forward(const at::Tensor& logits, const at::Tensor& targets,
                 kernels::SoftmaxStatistics& statistics, Saved* saved) const;

  // Takes off `saved` what forward appended. The result is to be multiplied with what is left of
  // `scale`: that of wide logits, which a product may do on its way.
  at::Tensor gradient(Saved& saved, double& scale) const;

 private:
  int64_t begin_;
  kernels::TensorRegion region_;
};

}  // namespace smp::layers
