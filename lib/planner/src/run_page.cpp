#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>

#include "html.h"
#include "smp/plan/job_names.h"
#include "smp/planner/compare.h"
#include "smp/planner/pipeline_timeline.h"
#include "smp/planner/run_record.h"
#include "smp/planner/units.h"

namespace smp {
namespace {

constexpr size_t kMostBars = 8;      // ranks whose memory is drawn
constexpr size_t kMostLines = 8;     // of a chart; more of them become lowest, median, highest
constexpr size_t kMostRows = 32;     // ranks whose step is drawn
constexpr size_t kMostBoxes = 8000;  // of a timeline
constexpr const char* kOrigin =
    "Measured by smp-worker and smp-launch; what is called predicted is the plan's.";

std::string steps_tick(double step) { return fmt::format("{:.0f}", step); }
std::string loss_tick(double loss) { return fmt::format("{:.4g}", loss); }
std::string time_tick(double seconds) { return seconds == 0 ? "0" : human_time(seconds); }
std::string bytes_tick(double bytes) { return human_bytes(std::llround(bytes)); }
std::string cpus_tick(double cpus) { return fmt::format("{:.3g}", cpus); }
std::string percent_tick(double percent) { return fmt::format("{:.0f} %", percent); }
std::string watts_tick(double watts) { return fmt::format("{:.0f} W", watts); }
std::string rate_tick(double rate) { return human_bytes(std::llround(rate)) + "/s"; }

double predicted_step_s(const Plan& plan) {
  return static_cast<double>(plan.predictions.step_ns) * 1e-9;
}

std::string off_text(double error) { return fmt::format("{:+.1f} %", 100 * error); }

// Predicted beside measured, of the ranks that were off most; all of them in a table.
std::string memory_section(const Comparison& comparison) {
  std::vector<const ComparedRank*> ranks;
  for (const ComparedRank& rank : comparison.ranks) ranks.push_back(&rank);
  std::stable_sort(ranks.begin(), ranks.end(), [](const ComparedRank* a, const ComparedRank* b) {
    return std::abs(a->peak.error()) > std::abs(b->peak.error());
  });
  ranks.resize(std::min(ranks.size(), kMostBars));
  std::sort(ranks.begin(), ranks.end(),
            [](const ComparedRank* a, const ComparedRank* b) { return a->rank < b->rank; });
  std::vector<html::Bar> bars;
  for (const ComparedRank* rank : ranks) {
    for (const bool measured : {false, true}) {
      const double peak = measured ? rank->peak.measured : rank->peak.predicted;
      html::Bar bar{fmt::format("rank {} {}", rank->rank, measured ? "measured" : "predicted"),
                    fmt::format("{} in {}", bytes_tick(peak),
                                measured ? rank->measured_phase : rank->predicted_phase),
                    {}};
      int colour = 0;
      for (const Compared& category : rank->categories) {
        const int64_t bytes = std::llround(measured ? category.measured : category.predicted);
        bar.segments.push_back({category.name, bytes, human_bytes(bytes), "", colour++});
      }
      bars.push_back(std::move(bar));
    }
  }
  std::vector<std::vector<std::string>> rows;
  for (const ComparedRank& rank : comparison.ranks)
    rows.push_back({fmt::format("{}", rank.rank), bytes_tick(rank.peak.predicted),
                    bytes_tick(rank.peak.measured), off_text(rank.peak.error())});
  const std::string some =
      comparison.ranks.size() > ranks.size()
          ? fmt::format("<p>The {} of {} ranks that are off most; all in the table below.</p>\n",
                        ranks.size(), comparison.ranks.size())
          : "";
  return some + html::stacked_bars(bars, "bytes", 0, "") +
         html::table({"rank", "predicted", "measured", "predicted is off by"}, rows);
}

html::Line step_line(const RunRecord& run, const std::string& name, int colour,
                     double MeasuredStep::*value) {
  html::Line line{name, colour, {}, {}};
  for (const MeasuredStep& step : run.steps) {
    line.x.push_back(static_cast<double>(step.step));
    line.y.push_back(step.*value);
  }
  return line;
}

// Of the steps that have it, if there are any.
void add_line(const RunRecord& run, const std::string& name, int colour,
              std::optional<double> MeasuredStep::*value, std::vector<html::Line>& lines) {
  html::Line line{name, colour, {}, {}};
  for (const MeasuredStep& step : run.steps) {
    if (!(step.*value)) continue;
    line.x.push_back(static_cast<double>(step.step));
    line.y.push_back(*(step.*value));
  }
  if (!line.x.empty()) lines.push_back(std::move(line));
}

std::string loss_section(const RunRecord& run) {
  std::vector<html::Line> lines = {step_line(run, "loss", 0, &MeasuredStep::loss)};
  add_line(run, "held out", 1, &MeasuredStep::evaluation_loss, lines);
  return html::line_chart(lines, {}, {"step", steps_tick}, {"loss", loss_tick}, false);
}

std::string step_time_section(const RunRecord& run) {
  std::vector<html::Level> levels;
  if (run.plan && run.plan->predictions.step_ns > 0)
    levels.push_back({"predicted", predicted_step_s(*run.plan)});
  std::vector<html::Line> lines = {step_line(run, "time of a step", 0, &MeasuredStep::step_s)};
  add_line(run, "exposed communication", 1, &MeasuredStep::exposed_s, lines);
  return html::line_chart(lines, levels, {"step", steps_tick}, {"time of a step", time_tick}, true);
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
  std::vector<html::Line> lines() const;

 private:
  std::vector<html::Line> bands() const;

  std::string of_;  // "rank"
  std::map<std::string, std::vector<std::pair<double, double>>> samples_;
};

std::vector<html::Line> Series::lines() const {
  if (samples_.size() > kMostLines) return bands();
  std::vector<html::Line> lines;
  for (const auto& [name, samples] : samples_) {
    html::Line line{name, static_cast<int>(lines.size()), {}, {}};
    for (const auto& [time, value] : samples) {
      line.x.push_back(time);
      line.y.push_back(value);
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<html::Line> Series::bands() const {
  std::vector<std::tuple<double, std::string, double>> all;
  for (const auto& [name, samples] : samples_) {
    for (const auto& [time, value] : samples) all.emplace_back(time, name, value);
  }
  std::sort(all.begin(), all.end());
  std::vector<html::Line> lines = {
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

UsageCharts charts_of(const std::vector<HostUsage>& usage) {
  UsageCharts charts;
  for (const HostUsage& sample : usage) {
    const double time = std::chrono::duration<double>(sample.time - usage.front().time).count();
    for (const RankUsage& rank : sample.ranks) {
      const std::string name = fmt::format("rank {:>4}", rank.rank);
      charts.cpus.add(name, time, rank.cpus);
      charts.memory.add(name, time, static_cast<double>(rank.memory_bytes));
    }
    for (const GpuUsage& gpu : sample.gpus) {
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

void add_usage_sections(const RunRecord& run, std::vector<html::Section>& sections) {
  const UsageCharts charts = charts_of(run.usage);
  const html::Axis time{"time since the first sample", time_tick};
  const auto add = [&](const char* title, const Series& series, const html::Axis& axis) {
    if (!series.empty())
      sections.push_back({title, html::line_chart(series.lines(), {}, time, axis, true)});
  };
  add("CPUs kept busy by each rank", charts.cpus, {"CPUs", cpus_tick});
  add("Resident memory of each rank's processes", charts.memory, {"memory", bytes_tick, true});
  add("GPUs: share of time in use", charts.gpu_busy, {"busy", percent_tick});
  add("GPUs: memory", charts.gpu_memory, {"memory", bytes_tick, true});
  add("GPUs: power", charts.gpu_power, {"power", watts_tick});
  add("Network of each host", charts.network, {"bytes a second", rate_tick, true});
}

constexpr int kWaitingColour = 11;
const std::vector<html::Meaning> kMeanings = {{0, "forward"},
                                              {1, "backward"},
                                              {2, "weight gradients"},
                                              {3, "recompute"},
                                              {6, "send, receive, gather, reduce"},
                                              {9, "update"},
                                              {8, "other"},
                                              {kWaitingColour, "waiting for peers"}};

int colour_of(const TimelinePiece& piece) {
  static const std::map<std::string, int> kColours = {
      {"forward", 0}, {"backward", 1}, {"weight", 2}, {"recompute", 3}, {"send", 6},
      {"receive", 6}, {"gather", 6},   {"reduce", 6}, {"update", 9},    {"step", 9}};
  if (piece.waiting) return kWaitingColour;
  const auto found = kColours.find(piece.phase);
  return found == kColours.end() ? 8 : found->second;
}

std::string name_of(const TimelinePiece& piece, int64_t ns) {
  return fmt::format(
      "{}{}{}: {}", piece.waiting ? "waiting in " : "", piece.phase,
      piece.microbatch >= 0 ? fmt::format(" of microbatch {}", piece.microbatch) : "",
      human_time(static_cast<double>(ns) * 1e-9));
}

// Layer after layer of one pass, without the short pieces between them that no eye would see.
std::vector<TimelinePiece> merged(const std::vector<TimelinePiece>& pieces, int64_t unseen_ns) {
  std::vector<TimelinePiece> out;
  for (const TimelinePiece& piece : pieces) {
    if (!out.empty()) {
      TimelinePiece& last = out.back();
      const bool same = last.phase == piece.phase && last.microbatch == piece.microbatch &&
                        last.waiting == piece.waiting;
      if (same || piece.end_ns - piece.begin_ns < unseen_ns) {
        last.end_ns = piece.end_ns;
        continue;
      }
    }
    out.push_back(piece);
  }
  return out;
}

std::string timeline_section(const RunRecord& run) {
  const size_t shown = std::min(run.timelines.size(), kMostRows);
  int64_t begin = run.timelines.front().began_ns, span_ns = 0;
  for (size_t i = 0; i < shown; ++i) begin = std::min(begin, run.timelines[i].began_ns);
  for (size_t i = 0; i < shown; ++i) {
    const StepTimeline& one = run.timelines[i];
    if (!one.pieces.empty())
      span_ns = std::max(span_ns, one.began_ns - begin + one.pieces.back().end_ns);
  }
  std::vector<html::Box> boxes;
  std::vector<std::string> rows;
  std::vector<std::vector<std::string>> shares;
  // Each box at least so wide that all of them are not too many.
  const int64_t unseen_ns =
      span_ns * static_cast<int64_t>(shown) / static_cast<int64_t>(kMostBoxes);
  for (size_t i = 0; i < shown; ++i) {
    const StepTimeline& one = run.timelines[i];
    const int64_t offset = one.began_ns - begin;
    rows.push_back(fmt::format("rank {}", one.rank));
    for (const TimelinePiece& piece : merged(one.pieces, unseen_ns))
      boxes.push_back({static_cast<int64_t>(i), offset + piece.begin_ns, offset + piece.end_ns,
                       name_of(piece, piece.end_ns - piece.begin_ns), colour_of(piece), 0});
    int64_t waited = 0, all = 0;
    for (const TimelinePiece& piece : one.pieces) {
      all += piece.end_ns - piece.begin_ns;
      if (piece.waiting) waited += piece.end_ns - piece.begin_ns;
    }
    shares.push_back({fmt::format("{}", one.rank), human_time(static_cast<double>(all) * 1e-9),
                      human_time(static_cast<double>(waited) * 1e-9),
                      fmt::format("{:.1f} %", all > 0 ? 100.0 * static_cast<double>(waited) /
                                                            static_cast<double>(all)
                                                      : 0.0)});
  }
  std::string note = "on several hosts as far as their clocks agree";
  if (shown < run.timelines.size())
    note = fmt::format("the first {} of {} ranks; ", shown, run.timelines.size()) + note;
  return html::timeline(boxes, rows, span_ns, time_tick, kMeanings, note) +
         fmt::format("<p>Step {}, {} in all.</p>\n", run.timelines.front().step,
                     human_time(static_cast<double>(span_ns) * 1e-9)) +
         html::table({"rank", "step", "waited for peers", "share"}, shares);
}

std::string planned_timeline(const Plan& plan) {
  const int64_t stages = plan.degrees.pipeline;
  if (stages * *plan.job.training.microbatches > static_cast<int64_t>(kMostBoxes)) return "";
  const std::vector<TimelineEvent> events = pipeline_timeline(plan);
  if (events.empty()) return "";
  std::vector<html::Box> boxes;
  std::vector<std::string> rows;
  for (int64_t stage = 0; stage < stages; ++stage) rows.push_back(fmt::format("stage {}", stage));
  int64_t span_ns = 0;
  for (const TimelineEvent& event : events) {
    const int colour = event.kind == ActionKind::kForward    ? 0
                       : event.kind == ActionKind::kBackward ? 1
                                                             : 2;
    boxes.push_back({event.stage, event.start_ns, event.end_ns,
                     fmt::format("microbatch {}", event.microbatch), colour, event.chunk});
    span_ns = std::max(span_ns, event.end_ns);
  }
  return fmt::format("<p>As the plan predicted its passes, {}:</p>\n",
                     human_time(static_cast<double>(span_ns) * 1e-9)) +
         html::timeline(boxes, rows, span_ns, time_tick,
                        {{0, "forward"}, {1, "backward"}, {2, "weight gradients"}},
                        "paler: odd chunks; empty: waiting");
}

std::string summary_of(const RunRecord& run) {
  std::string text = run.folder;
  if (run.plan) {
    const Degrees& degrees = run.plan->degrees;
    text += fmt::format("\npipeline {} x tensor {} x data {} (shard {} x replica {}), sharding {}",
                        degrees.pipeline, degrees.tensor, degrees.data(), degrees.shard,
                        degrees.replica, name_of(*run.plan->job.parallel.sharding));
  }
  if (run.plan && run.report)
    text += fmt::format("\n{} steps, {} a step measured, {} predicted", run.report->steps,
                        human_time(run.report->step_s), human_time(predicted_step_s(*run.plan)));
  for (const std::string& note : run.notes) text += "\n" + note;
  return text;
}

}  // namespace

std::string run_page(const RunRecord& run) {
  std::vector<html::Section> sections;
  if (run.plan && run.report)
    sections.push_back({"Memory of a rank at its peak, by category",
                        memory_section(compare(*run.plan, *run.report, {}))});
  if (!run.steps.empty()) {
    sections.push_back({"Loss", loss_section(run)});
    sections.push_back({"Time of a step", step_time_section(run)});
  }
  if (!run.timelines.empty())
    sections.push_back({"A step of each rank",
                        timeline_section(run) + (run.plan ? planned_timeline(*run.plan) : "")});
  if (!run.usage.empty()) add_usage_sections(run, sections);
  const std::string title =
      run.plan ? run.plan->job.name : std::filesystem::path(run.folder).lexically_normal().string();
  return html::page("Run of " + title, summary_of(run), sections, kOrigin);
}

}  // namespace smp
