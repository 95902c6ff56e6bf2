#pragma once

#include "smp/plan/mesh/mesh.h"
#include "smp/plan/spec/job_spec.h"
#include "smp/planner/choice/layout_choice.h"

// Seconds of the calls that data parallelism and sharding make, while nothing else runs. One place
// for both tiers: the closed form and the simulation read it. Pure; no allocation.
namespace smp::time {

// Bytes of one element of a gradient that is sent.
double gradient_width(const JobSpec& job, const choice::LayoutChoice& choice);

// The groups that sum whole gradients, or those that the shard groups have summed.
mesh::Axis sums_over(const JobSpec& job, const choice::LayoutChoice& choice);

// Of a reduction: in the shard groups, and in those of sums_over.
struct ReductionSeconds {
  double in_shards = 0, across = 0;
  double all() const { return in_shards + across; }
};
// Of `elements` gradients in `calls` equal parts.
ReductionSeconds reduction_s(const JobSpec& job, const choice::LayoutChoice& choice,
                             double elements, double calls);

// Of `elements` weights of `width` bytes.
double gather_s(const JobSpec& job, const choice::LayoutChoice& choice, double elements,
                double width, double calls);

// By how much a call along the axis slows the computing beside it.
double slowdown_of(const JobSpec& job, mesh::Axis axis);

}  // namespace smp::time
