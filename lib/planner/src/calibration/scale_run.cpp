#include "smp/planner/calibration/scale_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "smp/plan/text/units.h"
#include "smp/planner/memory/memory_model.h"
#include "smp/planner/runs/compare.h"

namespace smp::calibration {
namespace {

const RankPrediction& fullest_of(const Plan& plan) {
  return *std::max_element(
      plan.predictions.ranks.begin(), plan.predictions.ranks.end(),
      [](const RankPrediction& a, const RankPrediction& b) { return a.peak_bytes < b.peak_bytes; });
}

// Of the rank whose peak was measured the highest; a category that was not predicted keeps 1.
double ratio_of(const runs::Compared& compared) {
  return compared.predicted > 0 && compared.measured > 0 ? compared.measured / compared.predicted
                                                         : 1;
}

// The plan's fullest rank and step, each category times its ratio.
template <class RatioOfCategory>
ScaledRun scaled_by(const Plan& plan, double step_ratio, RatioOfCategory ratio_of_category) {
  const RankPrediction& fullest = fullest_of(plan);
  ScaledRun scaled;
  for (int i = 0; i < kMemoryCategories; ++i) {
    const auto category = static_cast<MemoryCategory>(i);
    ScaledTerm term;
    term.name = std::string(name_of(category));
    for (const MemoryTerm& own : fullest.terms) {
      if (own.category == category) term.predicted += static_cast<double>(own.bytes);
    }
    term.ratio = ratio_of_category(term.name);
    scaled.peak_bytes += term.scaled();
    if (term.predicted > 0) scaled.memory.push_back(std::move(term));
  }
  if (plan.job.cluster.memory_per_process_bytes > 0) {
    scaled.allowed_bytes = static_cast<double>(memory::allowed_bytes(plan.job.cluster));
  }
  scaled.step = {"step", static_cast<double>(plan.predictions.step_ns) * 1e-9, step_ratio};
  return scaled;
}

}  // namespace

ScaledRun scale_run(const Plan& run_plan, const runs::RunReport& run, const Plan& plan) {
  const runs::Comparison comparison = runs::compare(run_plan, run, {});
  const auto highest =
      std::max_element(comparison.ranks.begin(), comparison.ranks.end(),
                       [](const runs::ComparedRank& a, const runs::ComparedRank& b) {
                         return a.peak.measured < b.peak.measured;
                       });
  return scaled_by(plan, ratio_of(comparison.step), [&](std::string_view category) {
    for (const runs::Compared& compared : highest->categories) {
      if (compared.name == category) return ratio_of(compared);
    }
    return 1.0;
  });
}

ScaledRun scale_run(const CalibrationRun& run, const Plan& plan) {
  const double step_s = static_cast<double>(run.plan.predictions.step_ns) * 1e-9;
  const double memory = run.peak_bytes ? static_cast<double>(*run.peak_bytes) /
                                             static_cast<double>(fullest_of(run.plan).peak_bytes)
                                       : 1;
  return scaled_by(plan, step_s > 0 ? run.step_s / step_s : 1,
                   [&](std::string_view) { return memory; });
}

std::string scaled_text(const ScaledRun& scaled) {
  std::string text = "scaled from the measured run: predicted x measured / predicted of the run\n";
  for (const ScaledTerm& term : scaled.memory) {
    text += fmt::format("  {:<14} {:>12} x {:.3f} = {:>12}\n", term.name,
                        text::human_bytes(static_cast<int64_t>(term.predicted)), term.ratio,
                        text::human_bytes(static_cast<int64_t>(term.scaled())));
  }
  text += fmt::format("  {:<14} {:>12}", "peak",
                      text::human_bytes(static_cast<int64_t>(scaled.peak_bytes)));
  if (scaled.allowed_bytes > 0) {
    text +=
        fmt::format(", {} allowed{}", text::human_bytes(static_cast<int64_t>(scaled.allowed_bytes)),
                    scaled.peak_bytes > scaled.allowed_bytes ? ": does not fit" : "");
  }
  return text + fmt::format("\n  {:<14} {:>12} x {:.3f} = {:>12}\n", "step",
                            text::human_time(scaled.step.predicted), scaled.step.ratio,
                            text::human_time(scaled.step.scaled()));
}

}  // namespace smp::calibration
