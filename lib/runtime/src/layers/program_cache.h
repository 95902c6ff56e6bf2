#pragma once

#include <memory>
#include <vector>

#include "layers/prepared_program.h"

namespace smp::layers {

// The programs of a rank's layers, made when a call first needs them. Used by the thread that runs
// the layers.
class ProgramCache {
 public:
  // `fuses`: with the fusions of fusions.h.
  ProgramCache(const ModelSpec& model, bool fuses) : model_(model), fuses_(fuses) {}

  // The program of a layer for calls of this size, with these inputs. Type, tensor rank and degree
  // are the same in all calls.
  const PreparedProgram& get(const model::LayerSpec& layer, const model::LayerCall& call,
                             const std::vector<at::Tensor>& inputs);
  const ModelSpec& model() const { return model_; }

 private:
  const ModelSpec model_;
  const bool fuses_;
  std::vector<std::unique_ptr<PreparedProgram>> programs_;
};

}  // namespace smp::layers
