#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "smp/plan/text/units.h"
#include "smp/planner/runs/compare.h"
#include "smp/planner/runs/run_record.h"

namespace smp::runs {
namespace {

struct RankTotals {
  double cpus = 0, most_cpus = 0;
  int64_t samples = 0, most_memory = 0;
};

std::string usage_text(const std::vector<system::HostUsage>& usage) {
  std::map<int, RankTotals> ranks;
  for (const system::HostUsage& sample : usage) {
    for (const system::RankUsage& rank : sample.ranks) {
      RankTotals& totals = ranks[rank.rank];
      totals.cpus += rank.cpus;
      totals.most_cpus = std::max(totals.most_cpus, rank.cpus);
      totals.most_memory = std::max(totals.most_memory, rank.memory_bytes);
      ++totals.samples;
    }
  }
  std::string text =
      fmt::format("\n{:<6}{:>14}{:>12}{:>18}\n", "rank", "CPUs, mean", "most", "most memory");
  for (const auto& [rank, totals] : ranks)
    text += fmt::format("{:<6}{:>14.2f}{:>12.2f}{:>18}\n", rank,
                        totals.cpus / static_cast<double>(totals.samples), totals.most_cpus,
                        text::human_bytes(totals.most_memory));
  struct GpuTotals {
    double busy = 0, most_power = 0;
    int64_t samples = 0, most_memory = 0;
  };
  std::map<std::pair<std::string, int>, GpuTotals> gpus;
  for (const system::HostUsage& sample : usage) {
    for (const system::GpuUsage& gpu : sample.gpus) {
      GpuTotals& totals = gpus[{sample.host, gpu.gpu}];
      totals.busy += gpu.busy_percent;
      totals.most_power = std::max(totals.most_power, gpu.power_w);
      totals.most_memory = std::max(totals.most_memory, gpu.memory_bytes);
      ++totals.samples;
    }
  }
  for (const auto& [place, totals] : gpus)
    text += fmt::format("{} GPU {}: {:.0f} % busy, {} and {:.0f} W at most\n", place.first,
                        place.second, totals.busy / static_cast<double>(totals.samples),
                        text::human_bytes(totals.most_memory), totals.most_power);
  return text;
}

// The median over the steps but the first, which also touches memory for the first time.
std::string exposed_text(const std::vector<MeasuredStep>& steps) {
  std::vector<double> seconds, shares;
  for (const MeasuredStep& step : steps) {
    if (!step.exposed_s || (step.step == steps.front().step && steps.size() > 1)) continue;
    seconds.push_back(*step.exposed_s);
    shares.push_back(step.step_s > 0 ? *step.exposed_s / step.step_s : 0);
  }
  if (seconds.empty()) return "";
  const auto median = [](std::vector<double>& values) {
    const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
  };
  return fmt::format("  exposed communication of rank 0 {} a step, {:.1f} % of it\n",
                     text::human_time(median(seconds)), 100 * median(shares));
}

}  // namespace

std::string run_text(const RunRecord& run) {
  std::string text = fmt::format("run {}\n", run.folder);
  for (const std::string& note : run.notes) text += fmt::format("  {}\n", note);
  if (!run.steps.empty())
    text += fmt::format("  loss {:.4f} -> {:.4f}, steps {} to {}\n", run.steps.front().loss,
                        run.steps.back().loss, run.steps.front().step, run.steps.back().step);
  text += exposed_text(run.steps);
  if (run.plan && run.report)
    text += fmt::format("\n{}", comparison_text(compare(*run.plan, *run.report, {})));
  if (!run.usage.empty()) text += usage_text(run.usage);
  return text;
}

}  // namespace smp::runs
