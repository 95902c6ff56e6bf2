#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "kernels/device_functions.h"
#include "plan/small_models.h"
#include "smp/comm/communicator.h"
#include "smp/plan/model/layers.h"
#include "smp/runtime/layers/layer.h"

// A whole model of layers on one tensor-parallel rank, for tests.
namespace smp::test {

// Full tensors by parameter name.
using NamedTensors = std::map<std::string, at::Tensor>;

// Arbitrary but fixed weights, far enough from their usual initial values that each matters.
NamedTensors arbitrary_weights(const ModelSpec& model, at::ScalarType type);
// The fields that the layers read, each once: tokens [b, s], of an encoder_decoder [2, b, s],
// further tokens, and targets [b, s]; of a list images in fp64 and labels [b].
std::vector<at::Tensor> arbitrary_batch(const ModelSpec& model, int64_t batch, int64_t sequence);

class ModelOnRank {
 public:
  // communicator may be null for one rank.
  ModelOnRank(const ModelSpec& model, const NamedTensors& weights, comm::Communicator* communicator,
              bool sequence_parallel = false, const TensorKinds& kinds = {},
              const Fusions& fusions = {});

  // Of the runs from now on.
  void set_context(const kernels::CallContext& context) { context_ = context; }
  // Loss of the batch, with those of further tokens; with `backward`, adds `scale` times its
  // gradients, what `later` takes then.
  double run(const std::vector<at::Tensor>& batch, bool backward, double scale = 1,
             layers::DeferredWeightGradients* deferred = nullptr);

  // This rank's boxes, by name; tied gradients are summed in the embedding's.
  NamedTensors weights() const { return weights_; }
  NamedTensors gradients() const { return gradients_; }
  const std::vector<std::unique_ptr<layers::Layer>>& layers() const { return layers_; }
  int64_t further_tokens() const { return further_tokens_; }  // that layers predict

 private:
  const ModelSpec model_;
  const int64_t further_tokens_;
  std::vector<std::unique_ptr<layers::Layer>> layers_;
  NamedTensors weights_, gradients_;
  kernels::CallContext context_;
};

// What tensor rank `rank` of `degree` holds of a full tensor; `spec` says whether it is shared.
at::Tensor box_of(const ModelSpec& model, const model::ParameterSpec& spec, const at::Tensor& full,
                  int64_t degree, int64_t rank);

// What a model's step came to: the loss, and each gradient.
struct Outcome {
  double loss = 0;
  NamedTensors gradients;
};

// Relative, the gradients' to the largest of all.
struct OutcomeDifference {
  double loss, gradients;
};
OutcomeDifference difference(const Outcome& outcome, const Outcome& expected);

// Sums of squares by a device's functions: of each range, and of all.
std::vector<double> square_sums(const kernels::DeviceFunctions& device, const at::Tensor& values,
                                const std::vector<kernels::FlatRange>& ranges);

// Largest |a - b| over largest |b|.
double relative_difference(const at::Tensor& a, const at::Tensor& b);

}  // namespace smp::test
