#pragma once

#include <cstdint>

#include "smp/plan/spec/job_spec.h"

namespace smp::links {

// What the time model says of one call by `ranks` ranks, spread evenly over `hosts` hosts. `bytes`
// is the full buffer of a rank, as nccl-tests count: what it reduces or sends, what an all-gather
// makes. Pure; any thread.
double collective_seconds(mesh::CollectiveOp op, double bytes, int64_t ranks, int64_t hosts,
                          const ClusterSpec& cluster);

}  // namespace smp::links
