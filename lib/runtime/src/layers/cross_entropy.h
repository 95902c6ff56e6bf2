#pragma once

#include "kernels/tensors.h"
#include "smp/runtime/layers/layer.h"

namespace smp::layers {

// Vocabulary-parallel cross-entropy: the mean over logits [rows, this rank's part of the
// vocabulary]. One buffer holds the logits, then their exponentials, then the gradient of the loss
// by the logits. With 16-bit logits the statistics are saved in fp32 instead, and the backward
// computes the gradient with the loss scale: 1 / rows without the scale would underflow in fp16.
class CrossEntropy {
 public:
  // `begin`: the first entry of the vocabulary of this rank's part.
  CrossEntropy(int64_t begin, const kernels::TensorRegion& region)
      : begin_(begin), region_(region) {}

  // Overwrites the logits and fills `statistics`. Appends the tensors that gradient() needs to
  // `saved`, unless it is null.
  double forward(const at::Tensor& logits, const at::Tensor& targets,
                 kernels::SoftmaxStatistics& statistics, Saved* saved) const;

  // Removes from `saved` the tensors that forward() appended. The caller must multiply the result
  // with `scale` as it is afterwards: 16-bit logits have used it up, wide ones leave it to the next
  // product.
  at::Tensor gradient(Saved& saved, double& scale) const;

 private:
  int64_t begin_;
  kernels::TensorRegion region_;
};

}  // namespace smp::layers
