#include "parity/covering.h"

#include <doctest/doctest.h>

// Everything legal is tried together with everything else it may meet: pairs of degrees, sharding,
// schedule, recompute, offload, family, tying, dropout, precision, split sequences and packed or
// gathered small tensors, each against one rank and against its plan.
namespace smp::parity {

TEST_CASE("the covering set, fp64, 5 steps: every combination trains as one rank does") {
  compare_covering_set(5);
}
TEST_CASE("the covering set, 2 steps: fp32, bf16 and fp16 too train as one rank does") {
  compare_covering_precisions(2);
}

}  // namespace smp::parity
