#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "kernels/update_range.h"
#include "optim/update_rule.h"
#include "smp/runtime/ledger/memory_ledger.h"

namespace smp::parameters {
class FlatParameters;
}

namespace smp::optim {

// The update of optimizer state in host memory. It runs on the host, as in ZeRO-Offload (Ren et al.
// 2021, arXiv 2101.06840): the state stays there, the gradient is copied to the host and the weight
// back, which is a fraction of the state's bytes. Both are copied in chunks through two host
// buffers, kHostUpdateElements long; weights in host memory need no buffer. Used by the rank's own
// thread.
class HostUpdate {
 public:
  // Allocates the buffers from the host's ledger.
  HostUpdate(const parameters::FlatParameters& parameters, ledger::MemoryLedger& host);

  // `range` is as for an update on the device; `weights` and `gradients` are the same elements.
  template <typename T>
  void run(const UpdateRule& rule, const kernels::UpdateRange<T>& range, const at::Tensor& weights,
           const at::Tensor& gradients);

 private:
  at::Tensor gradients_, weights_;  // one chunk; weights_ undefined if weights are in host memory
};

}  // namespace smp::optim
