#pragma once

namespace smp {

// A step of ranks that are threads of this machine and reduce their gradients in earnest, while
// layers take a fixed time: asleep, as the CPUs are while an accelerator computes, or computing
// themselves. Once with overlap, and once with each reduction waited for where it starts.
struct HiddenReduction {
  double step_s = 0, waited_s = 0;                // with overlap; means over steps and ranks
  double serial_step_s = 0, serial_waited_s = 0;  // without

  double hidden() const { return 1 - waited_s / serial_waited_s; }
};

HiddenReduction hidden_reduction(int ranks, bool sleeps);

}  // namespace smp
