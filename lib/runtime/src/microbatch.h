#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "smp/plan/schedule.h"
#include "smp/runtime/layer.h"

namespace smp {

// One call of one layer between its forward and its backward.
struct Call {
  std::vector<at::Tensor> outputs;
  Saved saved;
};

// A microbatch on its way through one chunk of this stage.
struct InFlight {
  at::Tensor tokens, targets;
  std::vector<at::Tensor> hidden;     // outputs of the last layer that ran, or what was received
  std::vector<at::Tensor> gradients;  // of the outputs of the layer whose backward is next
  std::vector<Call> calls;            // of the chunk's layers so far, in forward order
};

// What is under way on this stage.
class Microbatches {
 public:
  // Admits it where it is new.
  InFlight& admit(int64_t chunk, int64_t microbatch) { return in_flight_[{chunk, microbatch}]; }
  InFlight& at(int64_t chunk, int64_t microbatch) { return in_flight_.at({chunk, microbatch}); }
  bool has(int64_t chunk, int64_t microbatch) const {
    return in_flight_.contains({chunk, microbatch});
  }
  void end(int64_t chunk, int64_t microbatch) { in_flight_.erase({chunk, microbatch}); }
  bool empty() const { return in_flight_.empty(); }

 private:
  std::map<std::pair<int64_t, int64_t>, InFlight> in_flight_;
};

}  // namespace smp
