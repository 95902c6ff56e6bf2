#pragma once

#include <string_view>

#include "smp/plan/spec/job_spec.h"
#include "smp/planner/memory/memory_estimate.h"
#include "smp/planner/time/time_estimate.h"

namespace smp::prediction {

// How far a prediction may be off, from the residuals of published runs that were predicted with
// the shipped constants (docs/scoring.md has the table, the framework's file the numbers), or from
// the cluster's own runs where it was calibrated.
struct Range {
  double low = 0;
  double high = 0;
};
Range memory_range(const JobSpec& job, const choice::LayoutChoice& choice,
                   const memory::MemoryEstimate& estimate);
Range time_range(const JobSpec& job, const choice::LayoutChoice& choice,
                 const time::TimeEstimate& estimate);

// kFits: the high end of the range is below what a process may use. kTight: the prediction is, the
// high end is not: such a run may die. kNo: the prediction itself is beyond it.
enum class Fit { kFits, kTight, kNo };
std::string_view name_of(Fit fit);  // "fits", "tight", "no"
Fit fit_of(const JobSpec& job, const choice::LayoutChoice& choice,
           const memory::MemoryEstimate& estimate);

}  // namespace smp::prediction
