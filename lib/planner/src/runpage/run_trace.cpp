#include "runpage/run_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "page/html.h"
#include "runpage/run_timeline.h"
#include "smp/plan/text/units.h"
#include "smp/planner/runpage/planned_trace.h"

namespace smp::runpage {
namespace {

constexpr size_t kMostTraceRows = 33;  // a planned row for each stage drawn among them

// What a rank's time goes to, in the order of the table.
enum class Spent {
  kForward,
  kRecompute,
  kBackward,
  kWeight,
  kOffload,
  kMessages,  // starting sends and receives
  kStages,    // waiting for other stages: the bubble
  kReductions,
  kGathers,
  kAgreement,
  kWithin,  // waiting within a layer: tensor parallelism
  kUpdate,
  kOther,
};
constexpr std::array<const char*, 13> kSpentNames = {"forward",
                                                     "recompute",
                                                     "backward",
                                                     "weight gradients",
                                                     "offloading",
                                                     "starting messages between stages",
                                                     "waiting for other stages",
                                                     "reductions of gradients",
                                                     "gathers of weights",
                                                     "agreement on norm and loss",
                                                     "waiting within layers",
                                                     "update",
                                                     "between actions"};
using SpentNs = std::array<double, kSpentNames.size()>;
double& at(SpentNs& spent, Spent what) { return spent[static_cast<size_t>(what)]; }

Spent spent_in(const runinfo::TimelinePiece& piece) {
  static const std::map<std::string, Spent> kOf = {
      {"forward", Spent::kForward},   {"recompute", Spent::kRecompute},
      {"backward", Spent::kBackward}, {"weight", Spent::kWeight},
      {"offload", Spent::kOffload},   {"fetch", Spent::kOffload},
      {"send", Spent::kMessages},     {"receive", Spent::kMessages},
      {"reduce", Spent::kReductions}, {"reduce_kv", Spent::kReductions},
      {"gather", Spent::kGathers},    {"reduce_replicas", Spent::kReductions},
      {"step", Spent::kAgreement},    {"gradient_norm", Spent::kUpdate},
      {"update", Spent::kUpdate}};
  const auto found = kOf.find(piece.phase);
  const Spent what = found == kOf.end() ? Spent::kOther : found->second;
  if (!piece.waiting) return what;
  if (what == Spent::kMessages) return Spent::kStages;
  const bool computes = what == Spent::kForward || what == Spent::kRecompute ||
                        what == Spent::kBackward || what == Spent::kWeight;
  return computes ? Spent::kWithin : what;
}

// One rank's or stage's step, from the begin of the first of all ranks.
struct StepRow {
  std::string name;
  int64_t stage = 0;
  bool is_planned = false;
  bool waits_by_name = false;  // its slices do not say apart how long an action waits
  int64_t begin_ns = 0, end_ns = 0;
  std::vector<runinfo::TimelinePiece> pieces;  // without gaps but where nothing was done
};

// An action of the schedule waits under the name of what it waits for.
std::string phase_of(const std::string& name) {
  constexpr std::string_view kWait = "_wait";
  if (name.ends_with(kWait)) return name.substr(0, name.size() - kWait.size());
  return name == "free" ? "gather" : name;
}

// Of what a plan or a GPU does for an action: those that wait do nothing else.
bool waits_by_name(const std::string& name) { return name.ends_with("_wait") || name == "step"; }

void add_piece(StepRow& row, const runinfo::ReadSlice& action, bool waiting, int64_t begin,
               int64_t end) {
  if (end > begin)
    row.pieces.push_back({phase_of(action.name), action.microbatch, action.layer,
                          waiting || (row.waits_by_name && waits_by_name(action.name)), begin,
                          end});
}

// Cuts actions where they wait. Slices of one thread, in the order in which they began, an action
// before the waits within it.
void add_pieces(StepRow& row, const std::vector<const runinfo::ReadSlice*>& slices) {
  const runinfo::ReadSlice* action = nullptr;
  int64_t now = 0;
  const auto finish = [&] {
    if (action != nullptr) add_piece(row, *action, false, now, action->end_ns);
  };
  for (const runinfo::ReadSlice* slice : slices) {
    if (slice->category == "step") {
      row.begin_ns = slice->begin_ns;
      row.end_ns = slice->end_ns;
    } else if (slice->category == "wait") {
      if (action == nullptr) continue;
      add_piece(row, *action, false, now, slice->begin_ns);
      add_piece(row, *action, true, std::max(now, slice->begin_ns), slice->end_ns);
      now = std::max(now, slice->end_ns);
    } else {
      finish();
      action = slice;
      now = slice->begin_ns;
    }
  }
  finish();
}

std::vector<StepRow> measured_rows(const Plan& plan,
                                   const std::vector<runinfo::ReadSlice>& slices) {
  std::map<int64_t, std::vector<const runinfo::ReadSlice*>> by_rank;
  std::set<int64_t> on_gpus;
  for (const runinfo::ReadSlice& slice : slices) {
    if (slice.thread == runinfo::kGpuThread) on_gpus.insert(slice.pid);
  }
  int64_t origin = slices.front().begin_ns;
  for (const runinfo::ReadSlice& slice : slices) {
    // With a GPU, actions of the host are the launches of what it does.
    const bool is_launch = on_gpus.contains(slice.pid) && slice.category != "step";
    if (slice.thread != (is_launch ? runinfo::kGpuThread : runinfo::kComputeThread)) continue;
    by_rank[slice.pid].push_back(&slice);
    origin = std::min(origin, slice.begin_ns);
  }
  const mesh::Mesh mesh(plan.degrees, plan.job.parallel.placement_strategy);
  std::vector<StepRow> rows;
  for (const auto& [rank, own] : by_rank) {
    StepRow row;
    row.name = fmt::format("rank {}", rank);
    row.stage = mesh.coord_of(rank).pipeline;
    row.waits_by_name = on_gpus.contains(rank);
    add_pieces(row, own);
    row.begin_ns -= origin;
    row.end_ns -= origin;
    for (runinfo::TimelinePiece& piece : row.pieces) {
      piece.begin_ns -= origin;
      piece.end_ns -= origin;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<StepRow> planned_rows(const Plan& plan) {
  int64_t actions = plan.degrees.pipeline * *plan.job.training.microbatches;
  if (actions > static_cast<int64_t>(kMostBoxes)) return {};
  std::vector<StepRow> rows;
  for (const runinfo::RankTrace& trace : planned_trace(plan)) {
    std::vector<runinfo::ReadSlice> slices;
    for (const runinfo::TraceSlice& slice : trace.slices) {
      if (slice.kind != runinfo::SliceKind::kStep && slice.kind != runinfo::SliceKind::kAction)
        continue;
      const bool is_step = slice.kind == runinfo::SliceKind::kStep;
      runinfo::ReadSlice read;
      read.name = is_step ? "step 1" : std::string(name_of(slice.action.kind));
      read.category = is_step ? "step" : std::string(runinfo::trace_category(slice.action.kind));
      read.microbatch = slice.action.microbatch;
      read.layer = slice.action.layer;
      read.begin_ns = slice.begin_ns;
      read.end_ns = slice.end_ns;
      slices.push_back(std::move(read));
    }
    std::vector<const runinfo::ReadSlice*> all;
    for (const runinfo::ReadSlice& slice : slices) all.push_back(&slice);
    StepRow row;
    row.stage = static_cast<int64_t>(rows.size());
    row.name = fmt::format("stage {} planned", row.stage);
    row.is_planned = row.waits_by_name = true;
    add_pieces(row, all);
    rows.push_back(std::move(row));
  }
  return rows;
}

SpentNs spent_of(const StepRow& row) {
  SpentNs spent{};
  double in_pieces = 0;
  for (const runinfo::TimelinePiece& piece : row.pieces) {
    const auto ns = static_cast<double>(piece.end_ns - piece.begin_ns);
    at(spent, spent_in(piece)) += ns;
    in_pieces += ns;
  }
  at(spent, Spent::kOther) += static_cast<double>(row.end_ns - row.begin_ns) - in_pieces;
  return spent;
}

// Ranks of a stage do alike, and each stage has as many.
SpentNs mean_spent(const std::vector<StepRow>& rows, std::optional<int64_t> stage = {}) {
  SpentNs mean{};
  double count = 0;
  for (const StepRow& row : rows) {
    if (stage && row.stage != *stage) continue;
    const SpentNs spent = spent_of(row);
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += spent[i];
    ++count;
  }
  for (double& ns : mean) ns /= std::max(1.0, count);
  return mean;
}

double exposed(SpentNs& spent) {
  return at(spent, Spent::kReductions) + at(spent, Spent::kGathers) + at(spent, Spent::kAgreement) +
         at(spent, Spent::kWithin);
}

double sum_of(const SpentNs& spent) {
  double sum = 0;
  for (const double ns : spent) sum += ns;
  return sum;
}

std::string ns_text(double ns) { return timeline_tick(ns * 1e-9); }

std::string difference_text(double ns) {
  return fmt::format("{}{}", ns < 0 ? "-" : "+", text::human_time(std::abs(ns) * 1e-9));
}

// The planned row of each stage and below it its ranks, as many as there is room for.
std::string drawn_rows(const std::vector<StepRow>& planned, const std::vector<StepRow>& measured) {
  std::vector<const StepRow*> shown;
  const size_t stages = static_cast<size_t>(
      std::max_element(measured.begin(), measured.end(),
                       [](const StepRow& a, const StepRow& b) { return a.stage < b.stage; })
          ->stage +
      1);
  const size_t ranks_of_stage = std::max<size_t>(1, measured.size() / stages);
  const size_t with_plan = planned.empty() ? 0 : 1;
  const size_t ranks_shown =
      std::clamp(kMostTraceRows / stages > with_plan ? kMostTraceRows / stages - with_plan : 1,
                 size_t{1}, ranks_of_stage);
  size_t ranks = 0;
  int64_t span = 1;
  for (size_t stage = 0; stage < stages; ++stage) {
    if (shown.size() + with_plan + ranks_shown > kMostTraceRows) break;
    if (with_plan > 0) shown.push_back(&planned[stage]);
    size_t of_stage = 0;
    for (const StepRow& row : measured) {
      if (row.stage != static_cast<int64_t>(stage) || of_stage == ranks_shown) continue;
      shown.push_back(&row);
      ++of_stage;
    }
    ranks += of_stage;
  }
  for (const StepRow* row : shown) span = std::max(span, row->end_ns);
  const int64_t unseen =
      span * static_cast<int64_t>(shown.size()) / static_cast<int64_t>(kMostBoxes);
  std::vector<page::Box> boxes;
  std::vector<std::string> names;
  for (size_t i = 0; i < shown.size(); ++i) {
    names.push_back(shown[i]->name);
    for (const runinfo::TimelinePiece& piece : merged(shown[i]->pieces, unseen))
      boxes.push_back({static_cast<int64_t>(i), piece.begin_ns, piece.end_ns,
                       name_of(piece, piece.end_ns - piece.begin_ns), colour_of(piece), 0});
  }
  std::string note = "empty: between actions";
  if (ranks < measured.size())
    note = fmt::format("{} of {} ranks; ", ranks, measured.size()) + note;
  return page::timeline(boxes, names, span, timeline_tick, kStepMeanings, note);
}

// Where the step differs most from the plan, in words.
std::string largest_differences(const std::vector<std::pair<double, size_t>>& sorted,
                                double planned_ns, double measured_ns) {
  std::string text =
      fmt::format("<p>A rank's step took {} on average; {} were planned",
                  page::escape(ns_text(measured_ns)), page::escape(ns_text(planned_ns)));
  constexpr size_t kNamed = 3;
  std::string largest;
  for (size_t i = 0; i < std::min(kNamed, sorted.size()); ++i) {
    if (std::abs(sorted[i].first) < 0.01 * measured_ns) break;
    largest += fmt::format("{}{} {}", largest.empty() ? "" : ", ", kSpentNames[sorted[i].second],
                           difference_text(sorted[i].first));
  }
  return text + (largest.empty() ? ". No part is off by more than 1 %.</p>\n"
                                 : ". Off most: " + page::escape(largest) + ".</p>\n");
}

std::string tables(const std::vector<StepRow>& planned, const std::vector<StepRow>& measured) {
  const SpentNs was = mean_spent(measured), should = mean_spent(planned);
  std::vector<std::pair<double, size_t>> differences;
  for (size_t i = 0; i < was.size(); ++i) {
    if (was[i] != 0 || should[i] != 0) differences.emplace_back(was[i] - should[i], i);
  }
  std::stable_sort(differences.begin(), differences.end(), [](const auto& a, const auto& b) {
    return std::abs(a.first) > std::abs(b.first);
  });
  std::vector<std::vector<std::string>> kinds, stages;
  for (const auto& [difference, i] : differences)
    kinds.push_back(
        {kSpentNames[i], ns_text(should[i]), ns_text(was[i]), difference_text(difference)});
  kinds.push_back({"the whole step", ns_text(sum_of(should)), ns_text(sum_of(was)),
                   difference_text(sum_of(was) - sum_of(should))});
  for (const StepRow& row : planned) {
    SpentNs plan = mean_spent(planned, row.stage), run = mean_spent(measured, row.stage);
    stages.push_back({fmt::format("{}", row.stage), ns_text(at(plan, Spent::kStages)),
                      ns_text(at(run, Spent::kStages)), ns_text(exposed(plan)),
                      ns_text(exposed(run)), ns_text(sum_of(plan)), ns_text(sum_of(run))});
  }
  return largest_differences(differences, sum_of(should), sum_of(was)) +
         page::table({"of a rank's step, on average", "planned", "measured", "difference"}, kinds) +
         "<p>By stage, averages of its ranks. Bubble: waiting for other stages. Exposed: "
         "collectives that computing does not hide, waiting for slower peers included.</p>\n" +
         page::table({"stage", "bubble planned", "measured", "exposed planned", "measured",
                      "step planned", "measured"},
                     stages);
}

}  // namespace

std::string trace_section(const runs::RunRecord& run) {
  const std::vector<StepRow> measured = measured_rows(*run.plan, run.trace);
  if (measured.empty()) return "<p>The trace has no actions.</p>\n";
  const std::vector<StepRow> planned = planned_rows(*run.plan);
  std::string out = drawn_rows(planned, measured) +
                    fmt::format("<p>Step {} of trace.json.</p>\n", run.trace.front().step);
  if (planned.empty())
    return out + "<p>The plan predicts no times, or has too many passes to draw.</p>\n";
  return out + tables(planned, measured);
}

}  // namespace smp::runpage
