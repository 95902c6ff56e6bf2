#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "kernels/tensors.h"
#include "layers/parameter_views.h"
#include "ledger/tensor_factories.h"
#include "smp/plan/model/operators.h"

// One operator of a list of layers (operators.h), on tensors [batch, sample's shape] of any of the
// four types. Not thread-safe; calls for several microbatches may be under way at once.
namespace smp::layers {

class Operator {
 public:
  virtual ~Operator() = default;

  // Appends the kept() tensors that backward needs. With `may_overwrite` the result may be in the
  // input's memory.
  virtual at::Tensor forward(const at::Tensor& x, bool may_overwrite,
                             const kernels::CallContext& call, Saved& saved) const = 0;
  virtual size_t kept() const = 0;

  // Returns the gradient of the input, possibly in the memory of `dy`; undefined unless `wanted`.
  // Accumulates the gradients of parameters; a matrix's is deferred if `deferred` is given.
  virtual at::Tensor backward(Saved kept, at::Tensor dy, bool wanted,
                              const kernels::CallContext& call,
                              DeferredWeightGradients* deferred) const = 0;
};
using OperatorPtr = std::unique_ptr<Operator>;

// A matrix that tensor parallelism may split. Column-parallel (by its outputs): the gradient of the
// input is a sum over `before`. Row-parallel (by its inputs): the output is a sum over `behind`.
// Not split: both regions are of one rank.
struct ParallelMatrix {
  kernels::Linear linear;
  kernels::TensorRegion before, behind;

  // The bias on the one rank that adds it to a sum; undefined on the others.
  at::Tensor bias() const { return behind.rank() == 0 ? linear.bias.weight : at::Tensor(); }
};
ParallelMatrix parallel_matrix(const model::PlacedOperator& placed, const kernels::Linear& linear,
                               const kernels::TensorRegion& region);

// A wide buffer for the `count` sums of an image of 16-bit x; undefined if x is wide, where sums
// are taken in place.
inline at::Tensor empty_sums(const at::Tensor& x, int64_t count) {
  return kernels::is_narrow(x) ? ledger::empty_tensor({count}, kernels::wide_options(x))
                               : at::Tensor();
}

OperatorPtr make_convolution(const model::PlacedOperator& placed, const ParallelMatrix& matrix);
OperatorPtr make_linear(const ParallelMatrix& matrix);
OperatorPtr make_activation(OperatorKind kind);
OperatorPtr make_max_pool(const model::PlacedOperator& placed);
OperatorPtr make_mean_pool(const model::PlacedOperator& placed);
OperatorPtr make_flatten();
OperatorPtr make_dropout(const model::PlacedOperator& placed, const kernels::TensorRegion& region);
// Gathers the channels that the tensor ranks have split, ahead of an operator that reads all.
OperatorPtr make_gather(const model::ChannelCut& cut, const kernels::TensorRegion& region);
OperatorPtr make_feature_norm(const kernels::Norm& norm);

}  // namespace smp::layers
