#include "smp/planner/report/verdict.h"

#include <fmt/format.h>

#include <algorithm>

#include "choice/resolve.h"
#include "search/exact.h"
#include "search/explain.h"
#include "smp/plan/model/model_flops.h"
#include "smp/plan/model/operators.h"
#include "smp/plan/text/units.h"
#include "smp/planner/choice/choice_words.h"
#include "smp/planner/memory/memory_model.h"

namespace smp::report {
namespace {

const RankPrediction& fullest_of(const Plan& plan) {
  return *std::max_element(
      plan.predictions.ranks.begin(), plan.predictions.ranks.end(),
      [](const RankPrediction& a, const RankPrediction& b) { return a.peak_bytes < b.peak_bytes; });
}

// Terms and parts of the closed form, in proportion to the plan's own peak and step.
search::PricedLayout priced_as_planned(const Plan& plan, int64_t peak_bytes) {
  const choice::LayoutChoice choice = choice::choice_of(plan);
  search::Pricer pricer(plan.job);
  search::Candidate exact;
  exact.choice = choice;
  exact.peak_bytes = static_cast<double>(peak_bytes);
  exact.step_s = static_cast<double>(plan.predictions.step_ns) * 1e-9;
  return search::at_exact_prices(pricer.detail(choice), exact);
}

prediction::Fit fit_of(const Plan& plan, const search::PricedLayout& priced, int64_t host_bytes) {
  const ClusterSpec& cluster = plan.job.cluster;
  if (cluster.host_memory_bytes > 0 &&
      host_bytes * cluster.processes_per_host > cluster.host_memory_bytes)
    return prediction::Fit::kNo;
  return prediction::fit_of(plan.job, priced.choice, priced.memory);
}

void add_time(Verdict& verdict, const Plan& plan, const search::PricedLayout& priced) {
  verdict.step_s = priced.time.step_s;
  if (verdict.step_s <= 0) return;
  const prediction::Range range = prediction::time_range(plan.job, priced.choice, priced.time);
  verdict.low_s = range.low;
  verdict.high_s = range.high;
  for (int i = 0; i < time::kTimeParts; ++i) {
    const auto part = static_cast<time::TimePart>(i);
    if (priced.time[part] > 0)
      verdict.parts.push_back({std::string(name_of(part)), priced.time[part]});
  }
  verdict.bound_by = name_of(search::bottleneck_of(plan.job.cluster, priced).time_part);
  const double peak = model::peak_flops_per_s(plan.job.cluster, *plan.job.training.precision) *
                      static_cast<double>(plan.degrees.world());
  // The flops of a list of layers are not counted in closed form.
  if (peak > 0 && !model::is_list(plan.job.model))
    verdict.mfu = priced.time.model_flops / peak / verdict.step_s;
}

// Both in the unit of the second: "61.2 of 79.6 GiB".
std::string of_text(int64_t bytes, int64_t allowed) {
  constexpr double kMiB = 1 << 20, kGiB = 1 << 30;
  const bool large = static_cast<double>(allowed) >= kGiB;
  const double unit = large ? kGiB : kMiB;
  return fmt::format("{:.1f} of {:.1f} {}", static_cast<double>(bytes) / unit,
                     static_cast<double>(allowed) / unit, large ? "GiB" : "MiB");
}

}  // namespace

Verdict verdict_of(const Plan& plan, const VerdictOptions& options) {
  Verdict verdict;
  const RankPrediction& fullest = fullest_of(plan);
  const search::PricedLayout priced = priced_as_planned(plan, fullest.peak_bytes);
  const ClusterSpec& cluster = plan.job.cluster;
  verdict.fit = fit_of(plan, priced, fullest.host_bytes);
  verdict.on_accelerator = cluster.device == DeviceKind::kCuda;
  verdict.layout = choice::describe(priced.choice);
  verdict.stage = fullest.stage;
  verdict.tensor = fullest.tensor;
  verdict.phase = fullest.peak_phase;
  verdict.peak_bytes = fullest.peak_bytes;
  const prediction::Range range = prediction::memory_range(plan.job, priced.choice, priced.memory);
  verdict.low_bytes = text::whole_bytes(range.low);
  verdict.high_bytes = text::whole_bytes(range.high);
  if (cluster.memory_per_process_bytes > 0) verdict.allowed_bytes = memory::allowed_bytes(cluster);
  verdict.terms = fullest.terms;
  verdict.events =
      memory::event_peaks(plan, fullest.stage, fullest.tensor, options.expert_imbalance);
  add_time(verdict, plan, priced);
  verdict.warnings = traps::traps_of(plan, verdict.events);
  return verdict;
}

std::string verdict_line(const Verdict& verdict) {
  std::string line = std::string(name_of(verdict.fit)) + ": ";
  if (verdict.fit == prediction::Fit::kTight) {
    line += verdict.on_accelerator ? "allocator retries likely: " : "may exceed its limit: ";
  }
  line += verdict.allowed_bytes > 0
              ? of_text(verdict.peak_bytes, verdict.allowed_bytes) + " a rank"
              : text::human_bytes(verdict.peak_bytes) + " a rank, no limit is given";
  line += fmt::format(" (fullest: stage {}, {})", verdict.stage, verdict.phase);
  if (verdict.step_s > 0) {
    line += fmt::format(", step {} ({} to {})", text::human_time(verdict.step_s),
                        text::human_time(verdict.low_s), text::human_time(verdict.high_s));
    if (verdict.mfu) line += fmt::format(", MFU {:.0f} %", 100 * *verdict.mfu);
    line += ", bound by " + verdict.bound_by;
  }
  const size_t count = verdict.warnings.size();
  if (count > 0) line += fmt::format("; {} warning{}", count, count == 1 ? "" : "s");
  return line;
}

std::string events_text(const Verdict& verdict) {
  size_t width = 0;
  for (const memory::EventPeak& event : verdict.events) width = std::max(width, event.event.size());
  const memory::EventPeak& largest = memory::largest_of(verdict.events);
  std::string text;
  for (const memory::EventPeak& event : verdict.events) {
    text += fmt::format("  {:<{}}  {:>10}{}\n", event.event, width, text::human_bytes(event.bytes),
                        &event == &largest ? "  largest" : "");
  }
  return text;
}

std::string tight_text(const Verdict& verdict) {
  const std::string range = fmt::format(
      "{} a rank are predicted and up to {} measured in nine of ten runs; {} are allowed",
      text::human_bytes(verdict.peak_bytes), text::human_bytes(verdict.high_bytes),
      text::human_bytes(verdict.allowed_bytes));
  if (!verdict.on_accelerator) {
    return "the run may exceed its limit: " + range +
           ". Raise cluster.memory_per_process, shard more, or lower micro_batch";
  }
  return "allocator retries likely: " + range +
         ". Near the limit PyTorch's allocator frees its cache and asks again, and steps take 2 to "
         "7 times as long, or the run ends out of memory. Recompute or shard more, or lower "
         "micro_batch";
}

}  // namespace smp::report
