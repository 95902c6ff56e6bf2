#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "page/html.h"
#include "report/rank_classes.h"
#include "report/report_summary.h"
#include "search/stage_balance.h"
#include "smp/plan/model/layers.h"
#include "smp/plan/model/model_flops.h"
#include "smp/plan/spec/job_names.h"
#include "smp/plan/text/units.h"
#include "smp/planner/choice/choice_words.h"
#include "smp/planner/choice/legality.h"
#include "smp/planner/memory/memory_model.h"
#include "smp/planner/report/report.h"
#include "smp/planner/time/pipeline_timeline.h"

namespace smp::report {
namespace {

// More boxes than this say nothing to an eye, and make the page heavy.
constexpr int64_t kMostBoxes = 3000;

constexpr const char* kOrigin = "Predicted by smp-plan; nothing here was measured.";

std::string time_tick(double seconds) { return seconds == 0 ? "0" : text::human_time(seconds); }
std::string bytes_tick(double bytes) { return text::human_bytes(std::llround(bytes)); }

int64_t ns(double seconds) { return std::llround(seconds * 1e9); }

// The same colour for the same term on every bar of the page.
class Palette {
 public:
  int of(const std::string& name) {
    return known_.emplace(name, static_cast<int>(known_.size())).first->second;
  }

 private:
  std::map<std::string, int> known_;
};

std::string memory_section(const Plan& plan) {
  Palette palette;
  std::vector<page::Bar> bars;
  for (const ClassGroup& group : grouped(plan.predictions.ranks)) {
    page::Bar bar{
        group.name,
        fmt::format("{} in {}", text::human_bytes(group.rank->peak_bytes), group.rank->peak_phase),
        {}};
    for (const MemoryTerm& term : group.rank->terms) {
      bar.segments.push_back({term.name, term.bytes, text::human_bytes(term.bytes), term.formula,
                              palette.of(term.name)});
    }
    bars.push_back(std::move(bar));
  }
  const ClusterSpec& cluster = plan.job.cluster;
  const int64_t limit = cluster.memory_per_process_bytes > 0 ? memory::allowed_bytes(cluster) : 0;
  return page::stacked_bars(bars, "bytes", limit,
                            fmt::format("{} allowed a process", text::human_bytes(limit)));
}

std::string timeline_section(const Plan& plan) {
  const int64_t stages = plan.degrees.pipeline;
  const int64_t microbatches = *plan.job.training.microbatches;
  const int64_t chunks = plan.job.parallel.virtual_pipeline_degree.value_or(1);
  const int64_t shown = std::min(microbatches, kMostBoxes / (3 * stages * chunks));
  if (shown < 1) {
    return fmt::format("<p>{} stages are too many for a picture; see smp-plan schedule.</p>\n",
                       stages);
  }
  std::vector<page::Box> boxes;
  int64_t span_ns = 0;
  for (const time::TimelineEvent& event : time::pipeline_timeline(plan)) {
    if (event.microbatch >= shown) continue;
    const bool backward = event.kind == schedule::ActionKind::kBackward;
    const int colour = event.kind == schedule::ActionKind::kForward ? 0 : backward ? 1 : 2;
    const double seconds = static_cast<double>(event.end_ns - event.start_ns) * 1e-9;
    boxes.push_back({event.stage, event.start_ns, event.end_ns,
                     fmt::format("{} of microbatch {}, chunk {}: {}", name_of(event.kind),
                                 event.microbatch, event.chunk, text::human_time(seconds)),
                     colour, event.chunk});
    span_ns = std::max(span_ns, event.end_ns);
  }
  const std::string part =
      shown < microbatches ? fmt::format("the first {} of {} microbatches, ", shown, microbatches)
                           : "";
  std::vector<std::string> rows;
  for (int64_t stage = 0; stage < stages; ++stage) rows.push_back(fmt::format("stage {}", stage));
  return page::timeline(boxes, rows, span_ns, time_tick,
                        {{0, "forward"}, {1, "backward"}, {2, "weight gradients apart"}},
                        "paler: odd chunks; empty: waiting") +
         fmt::format("<p>{}{} in all; bubble of the step {:.1f} %</p>\n", part,
                     text::human_time(static_cast<double>(span_ns) * 1e-9),
                     static_cast<double>(plan.predictions.bubble_ppm) / 1e4);
}

std::string time_section(const Plan& plan, const search::PricedLayout& priced) {
  Palette palette;
  page::Bar parts{"predicted", text::human_time(priced.time.step_s), {}};
  for (int i = 0; i < time::kTimeParts; ++i) {
    const auto part = static_cast<time::TimePart>(i);
    const double seconds = priced.time[part];
    if (ns(seconds) <= 0) continue;
    const std::string name(name_of(part));
    parts.segments.push_back(
        {name, ns(seconds), text::human_time(seconds),
         fmt::format("{:.1f} % of the step", 100 * seconds / priced.time.step_s),
         palette.of(name)});
  }
  std::vector<page::Bar> bars;
  const double peak = model::peak_flops_per_s(plan.job.cluster, *plan.job.training.precision) *
                      static_cast<double>(plan.degrees.world());
  if (peak > 0) {
    const double ideal = priced.time.model_flops / peak;
    bars.push_back(
        {"roof: the model's flops at the peak rate",
         text::human_time(ideal),
         {{"model flops at peak", ns(ideal), text::human_time(ideal),
           fmt::format("{:.3g} flops / {:.3g} flops/s", priced.time.model_flops, peak), 11}}});
  }
  bars.push_back(std::move(parts));
  return page::stacked_bars(bars, "ns", 0, "");
}

std::string cost_text(double cost_per_token) {
  return cost_per_token > 0 ? fmt::format("{:.4g}", cost_per_token * 1e6) : "-";
}

std::string top_section(const search::SearchResult& result, const Plan& best) {
  std::vector<const Plan*> plans = {&best};
  for (const Plan& other : result.others) plans.push_back(&other);
  const auto peak_of = [](const Plan& plan) {
    int64_t peak = 0;
    for (const RankPrediction& rank : plan.predictions.ranks)
      peak = std::max(peak, rank.peak_bytes);
    return peak;
  };
  std::vector<std::vector<std::string>> rows;
  for (const Plan* plan : plans) {
    const mesh::Degrees& degrees = plan->degrees;
    const double slower = static_cast<double>(plan->predictions.step_ns) *
                              static_cast<double>(best.predictions.tokens_per_step) /
                              (static_cast<double>(best.predictions.step_ns) *
                               static_cast<double>(plan->predictions.tokens_per_step)) -
                          1;
    const int64_t less = peak_of(best) - peak_of(*plan);
    const std::string trade =
        plan == &best ? "chosen"
                      : fmt::format("{:+.1f} % time a token, {} {} a rank", 100 * slower,
                                    text::human_bytes(std::abs(less)), less >= 0 ? "less" : "more");
    rows.push_back(
        {fmt::format("{}", rows.size() + 1),
         fmt::format("p {} t {} d {} (z {}), {}", degrees.pipeline, degrees.tensor, degrees.data(),
                     degrees.shard, name_of(*plan->job.parallel.sharding)),
         fmt::format("{} x {}", *plan->job.training.micro_batch, *plan->job.training.microbatches),
         text::human_time(static_cast<double>(plan->predictions.step_ns) * 1e-9),
         text::human_bytes(peak_of(*plan)), trade});
  }
  return page::table({"#", "layout", "micro batch", "step", "fullest rank", "trades"}, rows);
}

bool same_layout(const search::PricedLayout& a, const search::PricedLayout& b) {
  return a.choice == b.choice;
}

std::string pareto_section(const search::SearchResult& result) {
  constexpr double kTokens = 1e6;
  std::vector<page::Point> points;
  std::vector<std::vector<std::string>> rows;
  const auto add = [&](const search::PricedLayout& layout, bool front, bool chosen) {
    points.push_back({layout.seconds_per_token * kTokens, layout.memory.peak_bytes,
                      choice::describe(layout.choice), front, chosen});
  };
  bool chosen_on_front = false;
  for (const search::PricedLayout& layout : result.pareto) {
    const bool chosen = result.best_priced && same_layout(layout, *result.best_priced);
    chosen_on_front = chosen_on_front || chosen;
    add(layout, true, chosen);
    rows.push_back({choice::describe(layout.choice),
                    text::human_time(layout.seconds_per_token * kTokens),
                    text::human_time(layout.time.step_s),
                    text::human_bytes(std::llround(layout.memory.peak_bytes)),
                    cost_text(layout.cost_per_token)});
  }
  for (const search::FamilyVerdict& verdict : result.families) {
    if (verdict.seconds_per_token <= 0 || verdict.outcome != search::FamilyVerdict::Outcome::kFits)
      continue;
    points.push_back(
        {verdict.seconds_per_token * kTokens, verdict.peak_bytes,
         fmt::format("best of t {} p {}: {}", verdict.tensor, verdict.pipeline, verdict.sharding),
         false, false});
  }
  if (result.best_priced && !chosen_on_front) add(*result.best_priced, false, true);
  return page::scatter(points, {"time of a million tokens", time_tick},
                       {"memory of the fullest rank", bytes_tick}) +
         page::table({"on the front", "1 M tokens", "step", "fullest rank", "cost of 1 M tokens"},
                     rows);
}

std::string families_section(const search::SearchResult& result) {
  std::vector<std::vector<std::string>> rows;
  for (const search::FamilyVerdict& verdict : result.families) {
    rows.push_back({std::string(name_of(verdict.outcome)), fmt::format("{}", verdict.tensor),
                    fmt::format("{}", verdict.pipeline), verdict.sharding, verdict.reason});
  }
  return page::table({"", "t", "p", "sharding", "why"}, rows);
}

std::string reasons_section(const Plan& plan) {
  std::string out = "<ul>\n";
  for (const std::string& reason : plan.reasons) {
    out += fmt::format("<li>{}</li>\n", page::escape(reason));
  }
  return out + "</ul>\n";
}

std::string summary_of(const Plan& plan) {
  const mesh::Degrees& degrees = plan.degrees;
  const ClusterSpec& cluster = plan.job.cluster;
  return fmt::format(
      "{} parameters on {} rank{} ({} host{} x {}, {})\n"
      "pipeline {} x tensor {} x data {} (shard {} x replica {}), sharding {}\n"
      "{} tokens a step, {} a step predicted",
      text::with_commas(model::parameter_count(plan.job.model)), text::with_commas(degrees.world()),
      degrees.world() == 1 ? "" : "s", cluster.hosts, cluster.hosts == 1 ? "" : "s",
      cluster.processes_per_host,
      cluster.accelerator.empty() ? std::string(name_of(cluster.device)) : cluster.accelerator,
      degrees.pipeline, degrees.tensor, degrees.data(), degrees.shard, degrees.replica,
      name_of(*plan.job.parallel.sharding), text::with_commas(plan.predictions.tokens_per_step),
      text::human_time(static_cast<double>(plan.predictions.step_ns) * 1e-9));
}

// What such predictions were off by: nine of ten measured runs lay within.
std::string ranges_of(const Plan& plan, const search::PricedLayout& priced) {
  const prediction::Range memory = prediction::memory_range(plan.job, priced.choice, priced.memory);
  const prediction::Range time = prediction::time_range(plan.job, priced.choice, priced.time);
  return fmt::format("\n{} to {} at the peak, {} to {} a step, in nine of ten runs like it",
                     text::human_bytes(std::llround(memory.low)),
                     text::human_bytes(std::llround(memory.high)), text::human_time(time.low),
                     text::human_time(time.high));
}

std::string infeasible_page(const search::SearchResult& result) {
  const search::Infeasible& infeasible = std::get<search::Infeasible>(result.best);
  std::string changes = "<ul>\n";
  for (const std::string& change : infeasible.changes) {
    changes += fmt::format("<li>{}</li>\n", page::escape(change));
  }
  return page::page("No layout fits", infeasible.problem,
                    {{"What would make it fit, smallest change first", changes + "</ul>\n"},
                     {"Layout families", families_section(result)}},
                    kOrigin);
}

}  // namespace

std::string report_html(const search::SearchResult& result) {
  const Plan* plan = std::get_if<Plan>(&result.best);
  if (plan == nullptr) return infeasible_page(result);
  std::vector<page::Section> sections = {
      {"Why", reasons_section(*plan)},
      {"Memory of a rank at its peak, by term", memory_section(*plan)}};
  if (result.best_priced && result.best_priced->time.step_s > 0) {
    sections.push_back({"Time of a step, by part", time_section(*plan, *result.best_priced)});
  }
  if (plan->degrees.pipeline > 1) {
    sections.push_back({fmt::format("Pipeline: {}, {}", name_of(*plan->job.parallel.pipeline),
                                    search::layers_of_stages(*plan)),
                        timeline_section(*plan)});
  }
  sections.push_back({"Best layouts and their trade-offs", top_section(result, *plan)});
  if (!result.pareto.empty()) sections.push_back({"Time against memory", pareto_section(result)});
  sections.push_back({"Layout families", families_section(result)});
  std::string summary = summary_of(*plan);
  if (result.best_priced) summary += ranges_of(*plan, *result.best_priced);
  return page::page(plan->job.name, summary, sections, kOrigin);
}

}  // namespace smp::report
