#include "smp/planner/runpage/run_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>

#include "page/html.h"
#include "runpage/run_timeline.h"
#include "runpage/run_trace.h"
#include "smp/plan/spec/job_names.h"
#include "smp/plan/text/units.h"
#include "smp/planner/runs/compare.h"
#include "smp/planner/runs/run_record.h"

namespace smp::runpage {
namespace {

constexpr size_t kMostBars = 8;   // ranks whose memory is drawn
constexpr size_t kMostLines = 8;  // of a chart; more of them become lowest, median, highest
constexpr const char* kOrigin =
    "Measured by smp-worker and smp-launch; predicted values are those of the plan.";

std::string steps_tick(double step) { return fmt::format("{:.0f}", step); }
std::string loss_tick(double loss) { return fmt::format("{:.4g}", loss); }
std::string time_tick(double seconds) { return seconds == 0 ? "0" : text::human_time(seconds); }
std::string bytes_tick(double bytes) { return text::human_bytes(std::llround(bytes)); }
std::string cpus_tick(double cpus) { return fmt::format("{:.3g}", cpus); }
std::string percent_tick(double percent) { return fmt::format("{:.0f} %", percent); }
std::string watts_tick(double watts) { return fmt::format("{:.0f} W", watts); }
std::string rate_tick(double rate) { return text::human_bytes(std::llround(rate)) + "/s"; }

double predicted_step_s(const Plan& plan) {
  return static_cast<double>(plan.predictions.step_ns) * 1e-9;
}

std::string off_text(double error) { return fmt::format("{:+.1f} %", 100 * error); }

// Predicted beside measured, of the ranks that were off most; all of them in a table.
std::string memory_section(const runs::Comparison& comparison) {
  std::vector<const runs::ComparedRank*> ranks;
  for (const runs::ComparedRank& rank : comparison.ranks) ranks.push_back(&rank);
  std::stable_sort(ranks.begin(), ranks.end(),
                   [](const runs::ComparedRank* a, const runs::ComparedRank* b) {
                     return std::abs(a->peak.error()) > std::abs(b->peak.error());
                   });
  ranks.resize(std::min(ranks.size(), kMostBars));
  std::sort(
      ranks.begin(), ranks.end(),
      [](const runs::ComparedRank* a, const runs::ComparedRank* b) { return a->rank < b->rank; });
  std::vector<page::Bar> bars;
  for (const runs::ComparedRank* rank : ranks) {
    for (const bool measured : {false, true}) {
      const double peak = measured ? rank->peak.measured : rank->peak.predicted;
      page::Bar bar{fmt::format("rank {} {}", rank->rank, measured ? "measured" : "predicted"),
                    fmt::format("{} in {}", bytes_tick(peak),
                                measured ? rank->measured_phase : rank->predicted_phase),
                    {}};
      int colour = 0;
      for (const runs::Compared& category : rank->categories) {
        const int64_t bytes = std::llround(measured ? category.measured : category.predicted);
        bar.segments.push_back({category.name, bytes, text::human_bytes(bytes), "", colour++});
      }
      bars.push_back(std::move(bar));
    }
  }
  std::vector<std::vector<std::string>> rows;
  for (const runs::ComparedRank& rank : comparison.ranks)
    rows.push_back({fmt::format("{}", rank.rank), bytes_tick(rank.peak.predicted),
                    bytes_tick(rank.peak.measured), off_text(rank.peak.error())});
  const std::string some =
      comparison.ranks.size() > ranks.size()
          ? fmt::format("<p>The {} of {} ranks that are off most; all in the table below.</p>\n",
                        ranks.size(), comparison.ranks.size())
          : "";
  return some + page::stacked_bars(bars, "bytes", 0, "") +
         page::table({"rank", "predicted", "measured", "predicted is off by"}, rows);
}

page::Line step_line(const runs::RunRecord& run, const std::string& name, int colour,
                     double runs::MeasuredStep::*value) {
  page::Line line{name, colour, {}, {}};
  for (const runs::MeasuredStep& step : run.steps) {
    line.x.push_back(static_cast<double>(step.step));
    line.y.push_back(step.*value);
  }
  return line;
}

// Of the steps that have it, if there are any.
void add_line(const runs::RunRecord& run, const std::string& name, int colour,
              std::optional<double> runs::MeasuredStep::*value, std::vector<page::Line>& lines) {
  page::Line line{name, colour, {}, {}};
  for (const runs::MeasuredStep& step : run.steps) {
    if (!(step.*value)) continue;
    line.x.push_back(static_cast<double>(step.step));
    line.y.push_back(*(step.*value));
  }
  if (!line.x.empty()) lines.push_back(std::move(line));
}

std::string loss_section(const runs::RunRecord& run) {
  std::vector<page::Line> lines = {step_line(run, "loss", 0, &runs::MeasuredStep::loss)};
  add_line(run, "held out", 1, &runs::MeasuredStep::evaluation_loss, lines);
  return page::line_chart(lines, {}, {"step", steps_tick}, {"loss", loss_tick}, false);
}

std::string step_time_section(const runs::RunRecord& run) {
  std::vector<page::Level> levels;
  if (run.plan && run.plan->predictions.step_ns > 0)
    levels.push_back({"predicted", predicted_step_s(*run.plan)});
  std::vector<page::Line> lines = {
      step_line(run, "time of a step", 0, &runs::MeasuredStep::step_s)};
  add_line(run, "exposed communication", 1, &runs::MeasuredStep::exposed_s, lines);
  return page::line_chart(lines, levels, {"step", steps_tick}, {"time of a step", time_tick}, true);
}

// Values over time, by who has them. Many become three: at each time the lowest, the median and
// the highest of what was last heard of each.
class Series {
 public:
  explicit Series(std::string of) : of_(std::move(of)) {}
  void add(const std::string& name, double time, double value) {
    samples_[name].emplace_back(time, value);
  }
  bool empty() const { return samples_.empty(); }
  std::vector<page::Line> lines() const;

 private:
  std::vector<page::Line> bands() const;

  std::string of_;  // "rank"
  std::map<std::string, std::vector<std::pair<double, double>>> samples_;
};

std::vector<page::Line> Series::lines() const {
  if (samples_.size() > kMostLines) return bands();
  std::vector<page::Line> lines;
  for (const auto& [name, samples] : samples_) {
    page::Line line{name, static_cast<int>(lines.size()), {}, {}};
    for (const auto& [time, value] : samples) {
      line.x.push_back(time);
      line.y.push_back(value);
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<page::Line> Series::bands() const {
  std::vector<std::tuple<double, std::string, double>> all;
  for (const auto& [name, samples] : samples_) {
    for (const auto& [time, value] : samples) all.emplace_back(time, name, value);
  }
  std::sort(all.begin(), all.end());
  std::vector<page::Line> lines = {
      {fmt::format("lowest of {} {}s", samples_.size(), of_), 2, {}, {}},
      {"median", 0, {}, {}},
      {"highest", 1, {}, {}}};
  std::map<std::string, double> now;
  for (size_t i = 0; i < all.size(); ++i) {
    const auto& [time, name, value] = all[i];
    now[name] = value;
    // A point for each whole second is enough.
    if (i + 1 < all.size() && std::floor(std::get<0>(all[i + 1])) == std::floor(time)) continue;
    std::vector<double> values;
    for (const auto& [who, last] : now) values.push_back(last);
    std::sort(values.begin(), values.end());
    const std::array<double, 3> bands = {values.front(), values[values.size() / 2], values.back()};
    for (size_t k = 0; k < lines.size(); ++k) {
      lines[k].x.push_back(time);
      lines[k].y.push_back(bands[k]);
    }
  }
  return lines;
}

struct UsageCharts {
  Series cpus{"rank"}, memory{"rank"}, gpu_busy{"GPU"}, gpu_memory{"GPU"}, gpu_power{"GPU"},
      network{"host"};
};

UsageCharts charts_of(const std::vector<system::HostUsage>& usage) {
  UsageCharts charts;
  for (const system::HostUsage& sample : usage) {
    const double time = std::chrono::duration<double>(sample.time - usage.front().time).count();
    for (const system::RankUsage& rank : sample.ranks) {
      const std::string name = fmt::format("rank {:>4}", rank.rank);
      charts.cpus.add(name, time, rank.cpus);
      charts.memory.add(name, time, static_cast<double>(rank.memory_bytes));
    }
    for (const system::GpuUsage& gpu : sample.gpus) {
      const std::string name = fmt::format("{} GPU {}", sample.host, gpu.gpu);
      charts.gpu_busy.add(name, time, gpu.busy_percent);
      charts.gpu_memory.add(name, time, static_cast<double>(gpu.memory_bytes));
      charts.gpu_power.add(name, time, gpu.power_w);
    }
    charts.network.add(sample.host + " sent", time, sample.sent_bytes_per_s);
    charts.network.add(sample.host + " received", time, sample.received_bytes_per_s);
  }
  return charts;
}

void add_usage_sections(const runs::RunRecord& run, std::vector<page::Section>& sections) {
  const UsageCharts charts = charts_of(run.usage);
  const page::Axis time{"time since the first sample", time_tick};
  const auto add = [&](const char* title, const Series& series, const page::Axis& axis) {
    if (!series.empty())
      sections.push_back({title, page::line_chart(series.lines(), {}, time, axis, true)});
  };
  add("CPUs kept busy by each rank", charts.cpus, {"CPUs", cpus_tick});
  add("Resident memory of each rank's processes", charts.memory, {"memory", bytes_tick, true});
  add("GPUs: share of time in use", charts.gpu_busy, {"busy", percent_tick});
  add("GPUs: memory", charts.gpu_memory, {"memory", bytes_tick, true});
  add("GPUs: power", charts.gpu_power, {"power", watts_tick});
  add("Network of each host", charts.network, {"bytes a second", rate_tick, true});
}

std::string summary_of(const runs::RunRecord& run) {
  std::string text = run.folder;
  if (run.plan) {
    const mesh::Degrees& degrees = run.plan->degrees;
    text += fmt::format("\npipeline {} x tensor {} x data {} (shard {} x replica {}), sharding {}",
                        degrees.pipeline, degrees.tensor, degrees.data(), degrees.shard,
                        degrees.replica, name_of(*run.plan->job.parallel.sharding));
  }
  if (run.plan && run.report)
    text += fmt::format("\n{} steps, {} a step measured, {} predicted", run.report->steps,
                        text::human_time(run.report->step_s),
                        text::human_time(predicted_step_s(*run.plan)));
  for (const std::string& note : run.notes) text += "\n" + note;
  return text;
}

}  // namespace

std::string run_page(const runs::RunRecord& run) {
  std::vector<page::Section> sections;
  if (run.plan && run.report)
    sections.push_back({"Memory of a rank at its peak, by category",
                        memory_section(runs::compare(*run.plan, *run.report, {}))});
  if (!run.steps.empty()) {
    sections.push_back({"Loss", loss_section(run)});
    sections.push_back({"Time of a step", step_time_section(run)});
  }
  if (run.plan && !run.trace.empty())
    sections.push_back({"A step as it was planned and as it was measured", trace_section(run)});
  else if (!run.timelines.empty())
    sections.push_back({"A step of each rank", timeline_section(run)});
  if (!run.usage.empty()) add_usage_sections(run, sections);
  const std::string title =
      run.plan ? run.plan->job.name : std::filesystem::path(run.folder).lexically_normal().string();
  return page::page("Run of " + title, summary_of(run), sections, kOrigin);
}

}  // namespace smp::runpage
