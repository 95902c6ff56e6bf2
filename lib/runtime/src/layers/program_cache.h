#pragma once

#include <memory>
#include <vector>

#include "layers/prepared_program.h"

namespace smp::layers {

// The programs of a rank's layers, made when a call first needs them. Used by the thread that runs
// the layers.
class ProgramCache {
 public:
  explicit ProgramCache(const ModelSpec& model) : model_(model) {}

  // The program of a layer for calls of this size, with these inputs.
  const PreparedProgram& get(const model::LayerSpec& layer, const model::LayerCall& call,
                             const std::vector<at::Tensor>& inputs);
  const ModelSpec& model() const { return model_; }

 private:
  const ModelSpec model_;
  std::vector<std::unique_ptr<PreparedProgram>> programs_;
};

}  // namespace smp::layers
