#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "smp/plan/model/layer_tensors.h"
#include "smp/plan/program/liveness.h"

namespace smp::layers {

// A layer's program for calls of one size, with what does not change between calls. Immutable.
struct PreparedProgram {
  program::LayerProgram program;
  int64_t micro_batch = 0, sequence_length = 0;
  // Sizes of each value, and its type.
  std::vector<std::vector<int64_t>> sizes;
  std::vector<at::ScalarType> types;
  std::vector<at::Tensor> fixed;  // parameters and their gradients, by value; else undefined
  std::vector<std::vector<int64_t>> input_sizes;  // as the layer before and the batch have them
  std::vector<model::TensorSpec> outputs;         // likewise; none for a loss
  // Values to let go behind each operation. `evaluation` is a forward that saves nothing.
  std::vector<std::vector<program::ValueId>> freed[program::kSections];
  std::vector<std::vector<program::ValueId>> freed_in_evaluation;
  std::vector<program::ValueId> deferred;  // what the gradients of weights read
};

}  // namespace smp::layers
