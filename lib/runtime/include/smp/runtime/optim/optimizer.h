#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "smp/plan/mesh/mesh.h"
#include "smp/plan/spec/job_spec.h"

namespace at {
class Tensor;
}

// The optimizer of one rank, on the flat buffers of FlatParameters: AdamW or SGD (spec.kind), fused
// to one pass over memory. A rank keeps state for and updates only what it owns: all of each
// bucket, or part `shard` of z when the optimizer state is sharded. Where weights have 16 bits it
// owns fp32 master weights too. Parameters whose spec says so decay. Used by the rank's own thread,
// under its LedgerScope.
namespace smp::ledger {
class MemoryLedger;
}
namespace smp::parameters {
class FlatParameters;
}

namespace smp::optim {

class Optimizer {
 public:
  // Allocates the state (category optimizer), layout().optimizer_elements of each kind. The weights
  // are drawn already: master weights start as they are. degrees: those of the plan; with shard > 1
  // the state is sharded. With `host` the state lies there, and is updated there.
  Optimizer(const OptimizerSpec& spec, const mesh::Degrees& degrees,
            parameters::FlatParameters& parameters, ledger::MemoryLedger* host = nullptr);
  ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Has the device sum the squares of the bucket's reduced gradients in its turn.
  void start_norms(int64_t bucket);
  // When all buckets' were started, adds to by_layer[i] the squares of layer i (its model index)
  // that fall to this rank: summed over *all* ranks of the world they are the layer's squared norm,
  // as each element that counts is summed on one rank only. In double, parameter by parameter, in
  // an order that does not depend on what else the stage holds. Waits for the device.
  void add_norms_squared(std::vector<double>& by_layer);

  // One update of this rank's elements with gradients multiplied by gradient_scale (clipping,
  // averaging and unscaling cost no pass of their own), bucket by bucket: begin(), then update() of
  // each bucket, in any order. Gradients are not changed. step() is all of it. `only_if_finite`:
  // unless the sum of the squares that start_norms() of the bucket has summed on this rank is
  // infinite or no number.
  void begin(double learning_rate, double gradient_scale);
  void update(int64_t bucket, bool only_if_finite = false);
  void step(double learning_rate, double gradient_scale);

  // Weights were set from outside: master weights become them.
  void adopt_weights();

  // What a checkpoint holds of it. A state is one value for each owned element: "momentum",
  // "variance", "master", as far as there are such.
  struct State {
    const char* name;
    const at::Tensor* values;  // [layout().optimizer_elements]
  };
  std::vector<State> states() const;
  int64_t steps_done() const;  // updates, of which Adam's bias correction depends
  void set_steps_done(int64_t steps);

  // Which elements they are, in ascending order of `state`; what no range names is padding.
  struct OwnedRange {
    int64_t parameter = 0;       // index into layout().parameters
    int64_t begin = 0, end = 0;  // elements of the layout's flat order
    int64_t state = 0;           // where they begin in each State's values
  };
  const std::vector<OwnedRange>& owned() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace smp::optim
