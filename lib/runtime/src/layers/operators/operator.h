#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "kernels/tensors.h"
#include "layers/parameter_views.h"
#include "ledger/new_tensors.h"
#include "smp/plan/model/operators.h"

// One operator of a list of layers (operators.h), on tensors [batch, sample's shape] of any of the
// four types. Not thread-safe; calls for several microbatches may be under way at once.
namespace smp::layers {

class Operator {
 public:
  virtual ~Operator() = default;

  // Appends kept() tensors that backward needs. The result may take the input's place where
  // `may_overwrite`.
  virtual at::Tensor forward(const at::Tensor& x, bool may_overwrite,
                             const kernels::CallContext& call, Saved& saved) const = 0;
  virtual size_t kept() const = 0;

  // The gradient of the input, which may take the place of the output's; undefined unless `wanted`.
  // Adds those of parameters; a matrix's may be put off.
  virtual at::Tensor backward(Saved kept, at::Tensor dy, bool wanted,
                              const kernels::CallContext& call, WeightWork* later) const = 0;
};
using OperatorPtr = std::unique_ptr<Operator>;

// A matrix of which the tensor ranks may hold a part each: by its outputs, where the gradient of
// its input is a sum over `before`, or by its inputs, where its output is one over `behind`. Of a
// rank that has all of it both are no more than that rank.
struct SharedMatrix {
  kernels::Linear linear;
  kernels::TensorRegion before, behind;

  // Added once to a sum.
  at::Tensor bias() const { return behind.rank() == 0 ? linear.bias.weight : at::Tensor(); }
};
SharedMatrix shared_matrix(const model::PlacedOperator& placed, const kernels::Linear& linear,
                           const kernels::TensorRegion& region);

// Where the `count` sums of an image of x are taken: undefined where they may be taken in place.
inline at::Tensor empty_sums(const at::Tensor& x, int64_t count) {
  return kernels::is_narrow(x) ? ledger::empty_tensor({count}, kernels::wide_options(x))
                               : at::Tensor();
}

OperatorPtr make_convolution(const model::PlacedOperator& placed, const SharedMatrix& matrix);
OperatorPtr make_linear(const SharedMatrix& matrix);
OperatorPtr make_activation(OperatorKind kind);
OperatorPtr make_max_pool(const model::PlacedOperator& placed);
OperatorPtr make_mean_pool(const model::PlacedOperator& placed);
OperatorPtr make_flatten();
OperatorPtr make_dropout(const model::PlacedOperator& placed, const kernels::TensorRegion& region);
// Ahead of an operator that reads all channels: from this rank's of the cut tensor to all.
OperatorPtr make_gather(const model::ChannelCut& cut, const kernels::TensorRegion& region);
OperatorPtr make_feature_norm(const kernels::Norm& norm);

}  // namespace smp::layers
