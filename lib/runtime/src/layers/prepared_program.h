#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "smp/plan/model/layer_tensors.h"
#include "smp/plan/program/build.h"

namespace smp::layers {

// A program for calls of one size, as ranks execute it. Alike layers share one: those of a deep
// model would not stay in the caches. Immutable.
struct PreparedProgram {
  program::LayerProgram program;
  model::LayerSpec layer;  // the first that has it
  model::LayerCall call;
  // Sizes of each value, and its type.
  std::vector<std::vector<int64_t>> sizes;
  std::vector<at::ScalarType> types;
  std::vector<std::vector<int64_t>> input_sizes;   // as the layer before and the batch have them
  std::vector<std::vector<int64_t>> output_sizes;  // as the layer behind wants them
  // Values to let go behind each operation; of a forward that saves nothing `freed_in_evaluation`.
  std::vector<std::vector<program::ValueId>> freed[program::kSections];
  std::vector<std::vector<program::ValueId>> freed_in_evaluation;
  std::vector<program::ValueId> deferred;  // what the gradients of weights read
};

}  // namespace smp::layers
