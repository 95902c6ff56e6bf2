#include "smp/planner/prediction/fit.h"

#include <algorithm>

#include "prediction/possible_jobs.h"
#include "smp/plan/base/check.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/planner/cost/layer_bytes.h"
#include "smp/planner/cost/layer_seconds.h"
#include "smp/planner/memory/memory_model.h"

namespace smp::prediction {
namespace {

// Measured / predicted of our engine on CPUs, where its own allocator counts what was predicted:
// nine of ten runs lie between low and high. On accelerators the framework's file says them.
constexpr Range kMemoryOnCpu{0.97, 1.03};
constexpr Range kTimeOnCpu{0.80, 1.25};

// Small models whose kernels are shorter than their launch: an interpreter's speed, other
// processes and checks decide, up to 4 times what is predicted.
constexpr double kSmallModelShare = 0.25;  // of the step, spent launching
constexpr double kSmallModelHigh = 4.0;

Range residuals_of(const framework::ResidualRange& range) { return {range.low, range.high}; }

// From the least low to the greatest high of the frameworks that an unknown one may be.
template <class RangeOf>
Range over_frameworks(const JobSpec& job, const choice::LayoutChoice& choice,
                      const RangeOf& range_of) {
  Range all;
  for (const JobSpec& one : possible_jobs(job, choice)) {
    const Range range = range_of(one);
    all.low = all.high == 0 ? range.low : std::min(all.low, range.low);
    all.high = std::max(all.high, range.high);
  }
  return all;
}

Range around(double value, const Range& residuals, double calibrated) {
  if (calibrated > 0) return {value / (1 + calibrated), value * (1 + calibrated)};
  return {value * residuals.low, value * residuals.high};
}

}  // namespace

Range memory_range(const JobSpec& job, const choice::LayoutChoice& choice,
                   const memory::MemoryEstimate& estimate) {
  if (framework::is_unknown(job.parallel.framework)) {
    return over_frameworks(job, choice, [&](const JobSpec& one) {
      const cost::LayerBytes bytes = cost::layer_bytes(one, choice);
      return memory_range(one, choice, memory::estimate_memory(one, choice, bytes));
    });
  }
  const Range residuals = job.cluster.device == DeviceKind::kCpu
                              ? kMemoryOnCpu
                              : residuals_of(framework::framework_of(job).memory);
  return around(estimate.peak_bytes, residuals, job.cluster.memory_error);
}

Range time_range(const JobSpec& job, const choice::LayoutChoice& choice,
                 const time::TimeEstimate& estimate) {
  if (framework::is_unknown(job.parallel.framework)) {
    return over_frameworks(job, choice, [&](const JobSpec& one) {
      return time_range(one, choice,
                        time::estimate_time(one, choice, cost::layer_bytes(one, choice),
                                            cost::layer_seconds(one, choice)));
    });
  }
  Range residuals = job.cluster.device == DeviceKind::kCpu
                        ? kTimeOnCpu
                        : residuals_of(framework::framework_of(job).time);
  if (estimate[time::TimePart::kLaunch] > kSmallModelShare * estimate.step_s) {
    residuals.high = kSmallModelHigh;
  }
  return around(estimate.step_s, residuals, job.cluster.time_error);
}

std::string_view name_of(Fit fit) {
  switch (fit) {
    case Fit::kFits: return "fits";
    case Fit::kTight: return "tight";
    case Fit::kNo: return "no";
  }
  check_failed(__FILE__, __LINE__, "unknown fit");
}

Fit fit_of(const JobSpec& job, const choice::LayoutChoice& choice,
           const memory::MemoryEstimate& estimate) {
  const double allowed = double(memory::allowed_bytes(job.cluster));
  if (estimate.peak_bytes > allowed) return Fit::kNo;
  return memory_range(job, choice, estimate).high > allowed ? Fit::kTight : Fit::kFits;
}

}  // namespace smp::prediction
