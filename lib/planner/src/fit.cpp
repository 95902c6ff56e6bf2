#include "smp/planner/fit.h"

#include "smp/planner/memory_model.h"

namespace smp {
namespace {

constexpr double kMemoryError = 0.15;
constexpr double kTimeError = 0.3;

}  // namespace

Range memory_range(const JobSpec& job, const LayoutChoice&, const MemoryEstimate& estimate) {
  const double error = job.cluster.memory_error > 0 ? job.cluster.memory_error : kMemoryError;
  return {estimate.peak_bytes / (1 + error), estimate.peak_bytes * (1 + error)};
}

Range time_range(const JobSpec& job, const LayoutChoice&, const TimeEstimate& estimate) {
  const double error = job.cluster.time_error > 0 ? job.cluster.time_error : kTimeError;
  return {estimate.step_s / (1 + error), estimate.step_s * (1 + error)};
}

std::string_view name_of(Fit fit) {
  switch (fit) {
    case Fit::kFits: return "fits";
    case Fit::kTight: return "tight";
    case Fit::kNo: return "no";
  }
  return "no";
}

Fit fit_of(const JobSpec& job, const LayoutChoice& choice, const MemoryEstimate& estimate) {
  const double allowed = double(job.cluster.memory_per_process_bytes);
  if (estimate.peak_bytes > allowed) return Fit::kNo;
  return memory_range(job, choice, estimate).high > allowed ? Fit::kTight : Fit::kFits;
}

}  // namespace smp
