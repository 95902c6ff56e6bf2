#include "runpage/run_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "smp/plan/text/units.h"
#include "smp/planner/time/pipeline_timeline.h"

namespace smp::runpage {
namespace {

constexpr size_t kMostRows = 32;  // ranks whose step is drawn

std::string planned_passes(const Plan& plan) {
  const int64_t stages = plan.degrees.pipeline;
  if (stages * *plan.job.training.microbatches > static_cast<int64_t>(kMostBoxes)) return "";
  const std::vector<time::TimelineEvent> events = time::pipeline_timeline(plan);
  if (events.empty()) return "";
  std::vector<page::Box> boxes;
  std::vector<std::string> rows;
  for (int64_t stage = 0; stage < stages; ++stage) rows.push_back(fmt::format("stage {}", stage));
  int64_t span_ns = 0;
  for (const time::TimelineEvent& event : events) {
    const int colour = event.kind == schedule::ActionKind::kForward    ? 0
                       : event.kind == schedule::ActionKind::kBackward ? 1
                                                                       : 2;
    boxes.push_back({event.stage, event.start_ns, event.end_ns,
                     fmt::format("microbatch {}", event.microbatch), colour, event.chunk});
    span_ns = std::max(span_ns, event.end_ns);
  }
  return fmt::format("<p>As the plan predicted its passes, {}:</p>\n",
                     text::human_time(static_cast<double>(span_ns) * 1e-9)) +
         page::timeline(boxes, rows, span_ns, timeline_tick,
                        {{0, "forward"}, {1, "backward"}, {2, "weight gradients"}},
                        "paler: odd chunks; empty: waiting");
}

}  // namespace

std::string timeline_tick(double seconds) { return seconds == 0 ? "0" : text::human_time(seconds); }

const std::vector<page::Meaning> kStepMeanings = {{0, "forward"},
                                                  {1, "backward"},
                                                  {2, "weight gradients"},
                                                  {3, "recompute"},
                                                  {6, "send, receive, gather, reduce"},
                                                  {9, "update"},
                                                  {8, "other"},
                                                  {kWaitingColour, "waiting for peers"}};

int colour_of(const runinfo::TimelinePiece& piece) {
  static const std::map<std::string, int> kColours = {
      {"forward", 0}, {"backward", 1}, {"weight", 2},       {"recompute", 3},
      {"send", 6},    {"receive", 6},  {"gather", 6},       {"reduce", 6},
      {"update", 9},  {"step", 9},     {"gradient norm", 9}};
  if (piece.waiting) return kWaitingColour;
  const auto found = kColours.find(piece.phase);
  return found == kColours.end() ? 8 : found->second;
}

std::string name_of(const runinfo::TimelinePiece& piece, int64_t ns) {
  return fmt::format(
      "{}{}{}: {}", piece.waiting ? "waiting in " : "", piece.phase,
      piece.microbatch >= 0 ? fmt::format(" of microbatch {}", piece.microbatch) : "",
      text::human_time(static_cast<double>(ns) * 1e-9));
}

// Layer after layer of one pass, without the short pieces between them that no eye would see.
std::vector<runinfo::TimelinePiece> merged(const std::vector<runinfo::TimelinePiece>& pieces,
                                           int64_t unseen_ns) {
  std::vector<runinfo::TimelinePiece> out;
  for (const runinfo::TimelinePiece& piece : pieces) {
    if (!out.empty()) {
      runinfo::TimelinePiece& last = out.back();
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

std::string timeline_section(const runs::RunRecord& run) {
  const size_t shown = std::min(run.timelines.size(), kMostRows);
  int64_t begin = run.timelines.front().began_ns, span_ns = 0;
  for (size_t i = 0; i < shown; ++i) begin = std::min(begin, run.timelines[i].began_ns);
  for (size_t i = 0; i < shown; ++i) {
    const runinfo::StepTimeline& one = run.timelines[i];
    if (!one.pieces.empty())
      span_ns = std::max(span_ns, one.began_ns - begin + one.pieces.back().end_ns);
  }
  std::vector<page::Box> boxes;
  std::vector<std::string> rows;
  std::vector<std::vector<std::string>> shares;
  // Each box at least so wide that all of them are not too many.
  const int64_t unseen_ns =
      span_ns * static_cast<int64_t>(shown) / static_cast<int64_t>(kMostBoxes);
  for (size_t i = 0; i < shown; ++i) {
    const runinfo::StepTimeline& one = run.timelines[i];
    const int64_t offset = one.began_ns - begin;
    rows.push_back(fmt::format("rank {}", one.rank));
    for (const runinfo::TimelinePiece& piece : merged(one.pieces, unseen_ns))
      boxes.push_back({static_cast<int64_t>(i), offset + piece.begin_ns, offset + piece.end_ns,
                       name_of(piece, piece.end_ns - piece.begin_ns), colour_of(piece), 0});
    int64_t waited = 0, all = 0;
    for (const runinfo::TimelinePiece& piece : one.pieces) {
      all += piece.end_ns - piece.begin_ns;
      if (piece.waiting) waited += piece.end_ns - piece.begin_ns;
    }
    shares.push_back(
        {fmt::format("{}", one.rank), text::human_time(static_cast<double>(all) * 1e-9),
         text::human_time(static_cast<double>(waited) * 1e-9),
         fmt::format(
             "{:.1f} %",
             all > 0 ? 100.0 * static_cast<double>(waited) / static_cast<double>(all) : 0.0)});
  }
  std::string note = "on several hosts as far as their clocks agree";
  if (shown < run.timelines.size())
    note = fmt::format("the first {} of {} ranks; ", shown, run.timelines.size()) + note;
  return page::timeline(boxes, rows, span_ns, timeline_tick, kStepMeanings, note) +
         fmt::format("<p>Step {}, {} in all.</p>\n", run.timelines.front().step,
                     text::human_time(static_cast<double>(span_ns) * 1e-9)) +
         page::table({"rank", "step", "waited for peers", "share"}, shares) +
         (run.plan ? planned_passes(*run.plan) : "");
}

}  // namespace smp::runpage
