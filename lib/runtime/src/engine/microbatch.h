#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "smp/plan/schedule/schedule.h"
#include "smp/runtime/layers/layer.h"

namespace smp::engine {

// The tensors that one layer call keeps from its forward to its backward.
struct SavedCall {
  std::vector<at::Tensor> inputs;  // of a recomputed layer, if it keeps its inputs
  layers::Saved saved;             // of any other layer, and of a recomputed one afterwards
  std::vector<at::Tensor> shared;  // inputs that later layers also use; they are not offloaded
};

// A microbatch in flight through one chunk of this stage.
struct InFlight {
  std::map<model::BatchField, at::Tensor> fields;  // of the batch, that its layers read
  at::Tensor document_starts_on_host;  // the same as that field on CPUs; undefined without it
  std::vector<at::Tensor> hidden;      // outputs of the last layer that ran, or what was received
  std::vector<at::Tensor> gradients;   // of the outputs of the layer whose backward is next
  std::vector<at::Tensor> recomputed;  // outputs of the last layer that was computed again
  std::vector<SavedCall> calls;        // of the chunk's layers so far, in forward order
  std::deque<layers::DeferredWeightGradients>
      deferred_weight_gradients;  // of its layers, in the order of their backwards

  // To be asked only after its forward.
  bool is_done() const {
    return calls.empty() && gradients.empty() && deferred_weight_gradients.empty();
  }
};

// All microbatches in flight on this stage.
class Microbatches {
 public:
  // The microbatch, added if it is new.
  InFlight& admit(int64_t chunk, int64_t microbatch) { return in_flight_[{chunk, microbatch}]; }
  InFlight& at(int64_t chunk, int64_t microbatch) { return in_flight_.at({chunk, microbatch}); }
  void end_if_done(int64_t chunk, int64_t microbatch) {
    if (at(chunk, microbatch).is_done()) in_flight_.erase({chunk, microbatch});
  }
  bool empty() const { return in_flight_.empty(); }

 private:
  std::map<std::pair<int64_t, int64_t>, InFlight> in_flight_;
};

}  // namespace smp::engine
