#pragma once

#include <cstdint>

namespace smp {

// What a step of ranks that are threads of this machine loses by reducing its gradients in earnest,
// while layers take a fixed time: asleep, as the CPUs are while an accelerator computes, or
// computing themselves. The optimizer, which an accelerator would run as well, is left out.
struct ReductionCase {
  int ranks = 2;
  bool sleeps = true;
  int64_t hidden_size = 256;  // of 20 blocks: 63 MB of gradients; 512: 252 MB
  bool is_sharded = false;    // optimizer state: reduce-scatters, not all-reduces
  double pass_s = 0.0017;     // three of them are a block's forward and backward
};

// Medians of steps of three kinds, in turn, so that whatever else the machine does meets all of
// them alike; seconds.
struct HiddenReduction {
  int64_t gradient_bytes = 0;
  double compute_s = 0;      // of a step that reduces nothing, all else as it is
  double step_s = 0;         // with reductions beside the layers
  double serial_step_s = 0;  // with each reduction waited for where it starts
  double reductions_s = 0;   // of all reductions of a step alone, begun by all ranks at once

  // What a step with reductions beside the layers takes longer than its neighbour without,
  // whatever it is that takes the time: waiting, starting them, or a CPU or memory that is shared.
  double exposed_s = 0;
  double margin_s = 0;  // of 20 such medians 19 are as near as this to the true one

  double hidden() const { return 1 - exposed_s / reductions_s; }
  double margin() const { return margin_s / reductions_s; }
};

HiddenReduction hidden_reduction(const ReductionCase& what);

}  // namespace smp
