#pragma once

#include <string>

#include "smp/plan/job_spec.h"
#include "smp/planner/layout_choice.h"

namespace smp {

// Which library the collectives of data-parallel groups use, and why (empty = nothing to say). A
// pinned one counts. SMP (profiles smp_v1, smp_v2) uses whichever takes less of the step, the
// multiprocessors that each takes from matmuls included; but NCCL in jobs with tensor parallelism
// and no sharding, as SMP's own rule is. With the profile smp it is NCCL, and what the mesh would
// save is said. Other frameworks have NCCL alone.
struct CollectivesChoice {
  CollectivesKind kind = CollectivesKind::kNccl;
  std::string reason;
};
CollectivesChoice choose_collectives(const JobSpec& job, const LayoutChoice& choice);

}  // namespace smp
