#pragma once

#include <cstdint>

namespace smp {

// Which microbatch a call works on, and whether it trains. The backward of a call, and a forward
// again, have the context of its forward: by it a layer finds the same random numbers.
struct CallContext {
  uint64_t seed = 0;         // of the job
  int64_t step = 0;          // from 0
  int64_t first_sample = 0;  // of the microbatch, in the step's global batch
  bool trains = false;       // else nothing is random
};

}  // namespace smp
