#pragma once

#include <vector>

#include "smp/plan/framework/framework.h"
#include "smp/planner/choice/layout_choice.h"

namespace smp::prediction {

// Whether a framework offers a layout: its schedule, sharding, axes and offloading.
bool offers(const framework::FrameworkSupport& support, const choice::LayoutChoice& choice);

// The job, once for each framework that it may be of: of its own; with framework: unknown, of each
// possible one that offers the layout. Throws ConfigError if none does.
std::vector<JobSpec> possible_jobs(const JobSpec& job, const choice::LayoutChoice& choice);

}  // namespace smp::prediction
