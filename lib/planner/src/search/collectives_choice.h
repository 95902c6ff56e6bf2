#pragma once

#include <string>
#include <vector>

#include "smp/plan/spec/job_spec.h"
#include "smp/planner/choice/layout_choice.h"

namespace smp::search {

class Pricer;

// What moves GPUs' memory in each kind of group, and why (a line each; none = nothing to say). What
// is pinned counts. With the framework smp each kind of group along an axis has the way that takes
// less of the step, the multiprocessors that it takes from matmuls included; NCCL where hosts would
// save less than 3 %, where what is offloaded has their links, and where they have no room for the
// messages. SMP (frameworks smp-v1, smp-v2) has one for all groups of data parallelism, found
// likewise; but NCCL in jobs with tensor parallelism and no sharding, as SMP's own rule is. Other
// frameworks have NCCL alone.
struct CollectivesChoice {
  GroupCollectives groups;  // of the axes on which the layout has groups
  CollectivesKind others = CollectivesKind::kNccl;
  std::vector<std::string> reasons;
};
CollectivesChoice choose_collectives(Pricer& pricer, const choice::LayoutChoice& choice);

}  // namespace smp::search
