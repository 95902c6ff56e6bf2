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

// What one call of a layer keeps from its forward to its backward.
struct KeptCall {
  std::vector<at::Tensor> inputs;  // of a layer that is computed again, where it keeps them
  layers::Saved saved;             // of the others, and once it was computed again
  std::vector<at::Tensor> shared;  // inputs that flow on to layers behind it; they stay here
};

// A microbatch on its way through one chunk of this stage.
struct InFlight {
  std::map<model::BatchField, at::Tensor> fields;  // of the batch, that its layers read
  at::Tensor document_starts_on_host;  // the same as that field on CPUs; undefined without it
  std::vector<at::Tensor> hidden;      // outputs of the last layer that ran, or what was received
  std::vector<at::Tensor> gradients;   // of the outputs of the layer whose backward is next
  std::vector<at::Tensor> again;       // outputs of the last layer that was computed again
  std::vector<KeptCall> calls;         // of the chunk's layers so far, in forward order
  std::deque<layers::WeightWork> put_off;  // of its layers, in the order of their backwards

  // Asked once its forward is over.
  bool is_done() const { return calls.empty() && gradients.empty() && put_off.empty(); }
};

// What is under way on this stage.
class Microbatches {
 public:
  // Admits it where it is new.
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
