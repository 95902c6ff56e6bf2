#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "smp/runtime/memory_ledger.h"
#include "update_range.h"
#include "update_rule.h"

namespace smp {

class FlatParameters;

// The update of optimizer state that lies in host memory. It runs there, as in ZeRO-Offload (Ren et
// al. 2021, arXiv 2101.06840): the state stays where it is, a gradient comes to the host and a
// weight goes back, which is a fraction of the state's bytes. Both come chunk by chunk through two
// buffers of the host, kHostUpdateElements long; weights that live on the host need none. Used by
// the rank's own thread.
class HostUpdate {
 public:
  // Allocates the buffers from the host's ledger.
  HostUpdate(const FlatParameters& parameters, MemoryLedger& host);

  // `range` as the rule would have it on the device; weights and gradients: the same elements.
  template <typename T>
  void run(const UpdateRule& rule, const UpdateRange<T>& range, const at::Tensor& weights,
           const at::Tensor& gradients);

 private:
  at::Tensor gradients_, weights_;  // one chunk; weights_ undefined where they live on the host
};

}  // namespace smp
