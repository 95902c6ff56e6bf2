#pragma once

#include "smp/planner/search/search_result.h"

// The search: from a job with open keys to the plan. Two strategies:
//   fastest        the least predicted time per token of all layouts that fit; of times within 3 %
//                  the simplest layout
//   best-practice  the order of the SMP best practices: the smallest sharding that fits, against
//                  offloading instead of the next larger shard degree; a smaller batch; tensor
//                  parallelism; pipeline parallelism. A later step is taken only when no earlier
//                  one fits.
// All layouts are priced in closed form. The best are priced again by simulating their schedules,
// and one that then does not fit gives way to the next. Deterministic: the same job gives the same
// plan, byte for byte. Pure; any thread.
namespace smp::search {

// Throws ConfigError when a pinned key cannot be honoured by any layout of this cluster.
SearchResult plan_job(const JobSpec& job, const SearchOptions& options = {});

}  // namespace smp::search
