#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "smp/plan/job_spec.h"
#include "smp/plan/mesh.h"

namespace at {
class Tensor;
}

// AdamW with decoupled weight decay (Loshchilov and Hutter, arXiv 1711.05101; the update of
// torch.optim.AdamW), on the flat buffers of FlatParameters. Parameters whose spec says so decay.
// A rank keeps state for and updates only its part of each bucket: all of it, or part `shard` of z
// when the optimizer state is sharded (ZeRO-1). Used by the rank's own thread, under its
// LedgerScope.
namespace smp {

class FlatParameters;

// Linear warm-up over warmup_steps, then a cosine to min_learning_rate at the last of `steps`
// steps. step counts from 0.
double learning_rate_at(const OptimizerSpec& spec, int64_t steps, int64_t step);

class AdamW {
 public:
  // Allocates momentum and variance (category optimizer), zeroed: layout().optimizer_elements each.
  // degrees: those of the plan; with shard > 1 the state is sharded.
  AdamW(const OptimizerSpec& spec, const Degrees& degrees, FlatParameters& parameters);
  ~AdamW();
  AdamW(const AdamW&) = delete;
  AdamW& operator=(const AdamW&) = delete;

  // The squares of the reduced gradients that fall to this rank, such that the sum over *all* ranks
  // of the world is the squared global norm: each element that counts is summed on one rank only.
  // In double, in a fixed order.
  double local_norm_squared() const;

  // One update of this rank's elements with gradients multiplied by gradient_scale (clipping and
  // averaging cost no pass of their own). Gradients are not changed.
  void step(double learning_rate, double gradient_scale);

  // For checkpoints: what it keeps of each element that this rank updates, in the order of its
  // parts of the buckets, and how many updates there were.
  struct State {
    const char* name;
    const at::Tensor* values;  // [layout().optimizer_elements]
  };
  std::vector<State> states() const;
  int64_t steps_done() const;
  void set_steps_done(int64_t steps);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace smp
