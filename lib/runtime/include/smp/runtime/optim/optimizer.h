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
// to one pass over memory. A rank owns all of each bucket, or part `shard` of z when the optimizer
// state is sharded. It keeps state for the elements that it owns and updates no others. With 16-bit
// weights it keeps fp32 master weights too. Weight decay applies to the parameters whose spec says
// so. Used by the rank's own thread, under its LedgerScope.
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
  // must be initialised: master weights start as copies of them. With `host` the state is in host
  // memory and is updated there. `correction_rate` moves what follows the experts' load
  // (ParameterSpec::follows_load).
  Optimizer(const OptimizerSpec& spec, parameters::FlatParameters& parameters,
            ledger::MemoryLedger* host = nullptr, double correction_rate = 0);
  ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Asks the device to sum the squares of the bucket's reduced gradients. Does not wait.
  void start_norms(int64_t bucket);
  // Adds to by_layer[i] this rank's part of the squared gradient norm of layer i (its model index).
  // start_norms() must have been called for all buckets. Summed over all ranks of the world the
  // parts are the layer's squared norm: each element counts on one rank only. The sums are in
  // double, parameter by parameter, in an order that does not depend on the stage's other layers.
  // Waits for the device.
  void add_norms_squared(std::vector<double>& by_layer);

  // One update of this rank's elements, bucket by bucket: begin(), then update() of each bucket, in
  // any order. step() does both for all buckets. The update multiplies gradients by gradient_scale
  // as it reads them, so clipping, averaging and unscaling need no pass of their own; gradients are
  // not changed. With `only_if_finite` a bucket is left alone if the sum of squares from its
  // start_norms() is not finite on this rank.
  void begin(double learning_rate, double gradient_scale);
  void update(int64_t bucket, bool only_if_finite = false);
  void step(double learning_rate, double gradient_scale);

  // Copies the weights into the master weights, after the caller has set the weights.
  void adopt_weights();

  // The states that a checkpoint saves, of "momentum", "variance" and "master" those that this
  // optimizer has. A state is one value for each owned element.
  struct State {
    const char* name;
    const at::Tensor* values;  // [layout().optimizer_elements]
  };
  std::vector<State> states() const;
  int64_t steps_done() const;  // updates so far; Adam's bias correction depends on it
  void set_steps_done(int64_t steps);

  // The elements that this rank owns, in ascending order of `state`. Elements in no range are
  // padding.
  struct OwnedRange {
    int64_t parameter = 0;       // index into layout().parameters
    int64_t begin = 0, end = 0;  // elements of the layout's flat order
    int64_t state = 0;           // index of the first one in each State's values
  };
  const std::vector<OwnedRange>& owned() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace smp::optim
