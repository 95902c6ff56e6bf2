#pragma once

#include <memory>
#include <vector>

#include "layers/prepared_program.h"

namespace smp::layers {

// The programs of a rank's layers, made when a call first needs them. Used by the thread that runs
// the layers.
class ProgramCache {
 public:
  ProgramCache(const ModelSpec& model, const Fusions& fusions) : model_(model), fusions_(fusions) {}

  // The program of a layer for calls of this size, with these inputs. Type, tensor rank, degree
  // and fusions are the same in all calls.
  const PreparedProgram& get(const model::LayerSpec& layer, const model::LayerCall& call,
                             const std::vector<at::Tensor>& inputs);
  const ModelSpec& model() const { return model_; }
  const Fusions& fusions() const { return fusions_; }

 private:
  const ModelSpec model_;
  const Fusions fusions_;
  std::vector<std::unique_ptr<PreparedProgram>> programs_;
};

}  // namespace smp::layers
