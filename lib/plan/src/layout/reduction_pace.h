#pragma once

#include <cstdint>

namespace smp {
struct Plan;
}

namespace smp::layout {

// How many elements of gradients a shard group reduces while the backward of the last microbatch
// makes one, at least 1; in a pipeline 0 where it is less. Half of what the cluster's rates say,
// because neither computing nor messages reach them. `elements`: of all gradients of a tensor rank,
// of all stages. Without rates: computing takes twice as long as communication. Pure.
int64_t reduced_per_computed(const Plan& plan, int64_t elements);

}  // namespace smp::layout
