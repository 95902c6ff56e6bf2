#include "smp/planner/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "choice/resolve.h"
#include "cost/state_bytes.h"
#include "report/rank_classes.h"
#include "report/report_search.h"
#include "report/report_summary.h"
#include "smp/plan/layout/schedule_of_plan.h"
#include "smp/plan/model/frozen_parts.h"
#include "smp/plan/model/layers.h"
#include "smp/plan/schedule/schedule.h"
#include "smp/plan/spec/job_names.h"
#include "smp/plan/text/units.h"
#include "smp/planner/memory/memory_model.h"
#include "smp/planner/report/terminal.h"
#include "smp/planner/time/time_model.h"

namespace smp::report {
namespace {

// Without --explain: with the lines that say where the plan was written no more than 25, as wide as
// the terminal is.
constexpr size_t kReportLines = 22;
constexpr size_t kAllLines = std::numeric_limits<size_t>::max();
constexpr int64_t kWideColumns = 120;  // bytes by category need as much

std::array<int64_t, kMemoryCategories> by_category(const RankPrediction& rank) {
  std::array<int64_t, kMemoryCategories> bytes{};
  for (const MemoryTerm& term : rank.terms) bytes[static_cast<size_t>(term.category)] += term.bytes;
  return bytes;
}

std::string memory_limit(const ClusterSpec& cluster) {
  if (cluster.memory_per_process_bytes == 0) return "no limit is given";
  if (cluster.reserved_bytes == 0) {
    return text::human_bytes(cluster.memory_per_process_bytes) + " allowed";
  }
  return fmt::format("{} allowed = {} - {} reserved",
                     text::human_bytes(memory::allowed_bytes(cluster)),
                     text::human_bytes(cluster.memory_per_process_bytes),
                     text::human_bytes(cluster.reserved_bytes));
}

// "; forward 30.10 GiB, step 12.00 GiB": the phases beside the one of the peak.
std::string phases_text(const RankPrediction& rank, const std::vector<memory::PhasePeak>& phases) {
  std::string text;
  for (const memory::PhasePeak& peak : phases) {
    if (peak.phase == rank.peak_phase) continue;
    text += fmt::format("{}{} {}", text.empty() ? "; " : ", ", peak.phase,
                        text::human_bytes(peak.bytes));
  }
  return text;
}

std::string terms_text(const RankPrediction& rank) {
  std::string text;
  for (const MemoryTerm& term : rank.terms) {
    text +=
        fmt::format("    {:<34} {:>12}  {}  [{}; {}]\n", term.name, text::human_bytes(term.bytes),
                    term.formula, name_of(term.category), term.source);
  }
  return text;
}

// One line for ranks that hold the same: their bytes by category where the terminal is wide enough,
// else their largest term.
std::string class_line(const ClassGroup& group, bool wide) {
  std::string text = fmt::format("  {:<20} {:>10} {:<8}", group.name,
                                 text::human_bytes(group.rank->peak_bytes), group.rank->peak_phase);
  if (wide) {
    for (const int64_t bytes : by_category(*group.rank)) {
      text += fmt::format(" {:>10}", text::human_bytes(bytes));
    }
    return text + "\n";
  }
  const auto& terms = group.rank->terms;
  const auto largest =
      std::max_element(terms.begin(), terms.end(),
                       [](const MemoryTerm& a, const MemoryTerm& b) { return a.bytes < b.bytes; });
  if (largest != terms.end()) {
    text += fmt::format("  {} {}", largest->name, text::human_bytes(largest->bytes));
  }
  return text + "\n";
}

// Ten columns at most.
std::string_view head_of(MemoryCategory category) {
  if (category == MemoryCategory::kActivations) return "activat.";
  if (category == MemoryCategory::kCommunication) return "communic.";
  return name_of(category);
}

// What is offloaded, and what GPUs' messages pass through.
std::string host_line(const Plan& plan) {
  int64_t most = 0;
  for (const RankPrediction& rank : plan.predictions.ranks) most = std::max(most, rank.host_bytes);
  if (most == 0) return "";
  const ClusterSpec& cluster = plan.job.cluster;
  const std::string has =
      cluster.host_memory_bytes == 0
          ? ""
          : fmt::format(", which has {}", text::human_bytes(cluster.host_memory_bytes));
  return fmt::format("  host memory: {} of a rank, {} of a host{}\n", text::human_bytes(most),
                     text::human_bytes(most * cluster.processes_per_host), has);
}

std::string memory_text(const Plan& plan, int64_t columns) {
  const bool wide = columns == 0 || columns >= kWideColumns;
  std::string text =
      fmt::format("memory of a rank at its peak; {}\n", memory_limit(plan.job.cluster));
  const std::vector<ClassGroup> groups = grouped(plan.predictions.ranks);
  if (groups.size() > 1) {
    text += fmt::format("  {:<20} {:>10} {:<8}", "ranks of", "peak", "in");
    if (wide) {
      for (int i = 0; i < kMemoryCategories; ++i) {
        text += fmt::format(" {:>10.10}", head_of(static_cast<MemoryCategory>(i)));
      }
    } else {
      text += "  most of it";
    }
    text += "\n";
    for (const ClassGroup& group : groups) text += class_line(group, wide);
  }
  memory::MemoryModel model(plan);
  for (const ClassGroup& group : groups) {
    const RankPrediction& rank = *group.rank;
    text += fmt::format("  {}: {} in {}{}\n", group.name, text::human_bytes(rank.peak_bytes),
                        rank.peak_phase, phases_text(rank, model.phases(rank.stage, rank.tensor)));
    text += terms_text(rank);
  }
  return text + host_line(plan);
}

std::string rule_line(const Plan& plan, int64_t parameters) {
  const double ours = plan.job.cluster.device == DeviceKind::kCpu
                          ? static_cast<double>(memory::bytes_per_parameter(plan.job).total())
                          : cost::state_bytes(plan.job, choice::choice_of(plan)).total();
  return fmt::format(
      "  rule of thumb, AMP + Adam: 16-bit weight {} + 16-bit gradient {} + fp32 gradient copy {} "
      "+ "
      "fp32 master {} + Adam {} = {} B\n"
      "  a parameter; x {} = {} for the whole model, unsharded; here {} B a {}parameter\n",
      memory::kAmpAdam.weight, memory::kAmpAdam.gradient, memory::kAmpAdam.gradient_copy,
      memory::kAmpAdam.master, memory::kAmpAdam.momentum + memory::kAmpAdam.variance,
      memory::kAmpAdam.total(), text::with_commas(parameters),
      text::human_bytes(memory::kAmpAdam.total() * parameters), ours,
      model::freezes_weights(plan.job) ? "trained " : "");
}

std::string time_text(const Plan& plan) {
  const time::TimePrediction time = time::predict_time(plan);
  if (time.step_ns == 0) return "time     unknown: the cluster names no rates\n";
  const auto seconds = [](int64_t ns) { return text::human_time(static_cast<double>(ns) * 1e-9); };
  std::string text = fmt::format(
      "time     {} a step, {} tokens/s, bubble {:.1f} %\n"
      "         compute {}",
      seconds(time.step_ns),
      text::human_count(static_cast<double>(plan.predictions.tokens_per_step) * 1e9 /
                        static_cast<double>(time.step_ns)),
      static_cast<double>(time.bubble_ppm) / 1e4, seconds(time.compute_ns));
  const std::pair<const char*, int64_t> parts[] = {
      {"tensor messages", time.tensor_ns}, {"sharding and reductions", time.sharding_ns},
      {"offload", time.offload_ns},        {"waiting for stages", time.bubble_ns},
      {"optimizer", time.optimizer_ns},
  };
  for (const auto& [name, ns] : parts) {
    if (ns > 0) text += fmt::format(", {} {}", name, seconds(ns));
  }
  return text + "\n";
}

std::string updates_text(const Plan& plan) {
  const auto wait = layout::why_updates_wait(plan.job.training);
  return fmt::format("updates  {}\n", wait ? "of all buckets follow the step's norm: " + *wait
                                           : "of a bucket start as soon as it is reduced");
}

size_t lines_of(const std::string& text, int64_t columns) {
  const std::string folded = fold(text, columns);
  return static_cast<size_t>(std::count(folded.begin(), folded.end(), '\n'));
}

// The first items, as many as `most` lines hold with the one that says how many more there are.
std::string first_of(const std::vector<std::string>& items, size_t most, int64_t columns,
                     std::string_view more) {
  std::string all;
  for (const std::string& item : items) all += item;
  if (lines_of(all, columns) <= most) return all;
  std::string text;
  size_t shown = 0;
  for (size_t lines = 1; shown < items.size(); ++shown) {
    lines += lines_of(items[shown], columns);
    if (lines > most) break;
    text += items[shown];
  }
  return text + fmt::format(fmt::runtime(more), items.size() - shown);
}

std::string verdicts_text(const search::SearchResult& result, size_t most, int64_t columns) {
  std::string text = fmt::format("layouts  {} priced in {}, by (tensor, pipeline)\n",
                                 text::with_commas(result.statistics.evaluations),
                                 text::human_time(result.statistics.total_seconds));
  std::vector<std::string> lines;
  for (const search::FamilyVerdict& verdict : result.families) {
    lines.push_back(fmt::format("  {:<9} t {:<3} p {:<3} {}: {}\n", name_of(verdict.outcome),
                                verdict.tensor, verdict.pipeline, verdict.sharding,
                                verdict.reason));
  }
  return text + first_of(lines, most, columns, "  ... {} more: --explain\n");
}

std::string others_text(const search::SearchResult& result, int64_t top) {
  std::string text;
  const auto wanted = static_cast<size_t>(std::max<int64_t>(0, top - 1));
  for (size_t i = 0; i < std::min(wanted, result.others.size()); ++i) {
    const Plan& plan = result.others[i];
    const TrainingSpec& training = plan.job.training;
    int64_t peak = 0;
    for (const RankPrediction& rank : plan.predictions.ranks) {
      peak = std::max(peak, rank.peak_bytes);
    }
    text += fmt::format(
        "  {}. {}\n     micro batch {} x {}; {} tokens/s, {} a step, bubble {:.1f} %, {} a rank\n",
        i + 2, layout_line(plan), *training.micro_batch, *training.microbatches,
        plan.predictions.step_ns == 0
            ? "?"
            : text::human_count(static_cast<double>(plan.predictions.tokens_per_step) * 1e9 /
                                static_cast<double>(plan.predictions.step_ns)),
        text::human_time(static_cast<double>(plan.predictions.step_ns) * 1e-9),
        static_cast<double>(plan.predictions.bubble_ppm) / 1e4, text::human_bytes(peak));
  }
  return text.empty() ? text : fmt::format("next best, by predicted tokens/s\n{}", text);
}

// One for each choice.
std::string why_text(const Plan& plan, size_t most, int64_t columns) {
  std::vector<std::string> lines;
  for (const std::string& reason : plan.reasons) {
    lines.push_back(fmt::format("{}{}\n", lines.empty() ? "why      " : "         ", reason));
  }
  const size_t one = lines.empty() ? 0 : lines_of(lines.front(), columns);
  return first_of(
      lines, most, columns,
      most > one ? "         {} more: --explain\n" : "why      {} reasons: --explain\n");
}

std::string engine_text(const Plan& plan) {
  std::string text;
  for (const std::string& lack : lacks_of_engine(plan)) {
    text += fmt::format("{}{}\n", text.empty() ? "engine   lacks " : "               ", lack);
  }
  return text;
}

std::string explained_text(const Plan& plan, const search::SearchResult& result,
                           const ReportOptions& options) {
  const mesh::Degrees& degrees = plan.degrees;
  return fmt::format("SMP      counts dp {} = world / pp, rdp {} = our data degree\n",
                     degrees.data() * degrees.tensor * degrees.context, degrees.data()) +
         engine_text(plan) + why_text(plan, kAllLines, options.columns) +
         fmt::format("\n{}{}\n{}{}", memory_text(plan, options.columns),
                     rule_line(plan, model::parameter_count(plan.job.model)), time_text(plan),
                     updates_text(plan)) +
         search_text(result) + verdicts_text(result, kAllLines, options.columns);
}

}  // namespace

std::string report_text(const search::SearchResult& result, const ReportOptions& options) {
  const Plan& plan = std::get<Plan>(result.best);
  std::string text = summary_text(result);
  if (options.explain) {
    text += explained_text(plan, result, options);
  } else {
    const std::string more =
        "more     --explain: memory term by term, where the step's time goes, every layout tried\n";
    const size_t used = lines_of(text + more, options.columns);
    text += why_text(plan, used < kReportLines ? kReportLines - used : 0, options.columns) + more;
  }
  text += others_text(result, options.top);
  text += pareto_text(result);
  return text;
}

std::string infeasible_text(const search::SearchResult& result, const ReportOptions& options) {
  const search::Infeasible& infeasible = std::get<search::Infeasible>(result.best);
  std::string text = "no layout fits: " + infeasible.problem + "\n";
  text += "what would make it fit, smallest change first\n";
  for (const std::string& change : infeasible.changes) text += "  " + change + "\n";
  if (infeasible.changes.empty()) {
    text +=
        "  no change of a single key makes it fit: tried pins, memory, hosts and the token limit\n";
  }
  // With the line above the verdicts.
  const size_t used = lines_of(text, options.columns) + 1;
  const size_t left = used < kReportLines ? kReportLines - used : 0;
  return text + verdicts_text(result, options.explain ? kAllLines : left, options.columns);
}

}  // namespace smp::report
