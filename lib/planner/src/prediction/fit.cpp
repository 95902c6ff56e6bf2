#include "smp/planner/prediction/fit.h"

#include "smp/plan/base/check.h"
#include "smp/plan/framework/framework_catalog.h"
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

Range around(double value, const Range& residuals, double calibrated) {
  if (calibrated > 0) return {value / (1 + calibrated), value * (1 + calibrated)};
  return {value * residuals.low, value * residuals.high};
}

}  // namespace

Range memory_range(const JobSpec& job, const choice::LayoutChoice&,
                   const memory::MemoryEstimate& estimate) {
  const Range residuals = job.cluster.device == DeviceKind::kCpu
                              ? kMemoryOnCpu
                              : residuals_of(framework::framework_of(job).memory);
  return around(estimate.peak_bytes, residuals, job.cluster.memory_error);
}

Range time_range(const JobSpec& job, const choice::LayoutChoice&,
                 const time::TimeEstimate& estimate) {
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
