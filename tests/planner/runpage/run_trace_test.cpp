#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "files_and_errors.h"
#include "planner/run_samples.h"
#include "scratch_folder.h"
#include "smp/plan/planfile/plan_file.h"
#include "smp/plan/runinfo/trace_file.h"
#include "smp/planner/runpage/planned_trace.h"
#include "smp/planner/runpage/run_page.h"
#include "smp/planner/runs/run_record.h"

using namespace smp;
using namespace smp::planfile;
using namespace smp::runinfo;
using namespace smp::runpage;
using namespace smp::runs;
using namespace smp::schedule;

namespace {

// Actions that wait do so in slices of their own.
RankTrace with_waits(const RankTrace& trace) {
  RankTrace all{trace.rank, false, {}};
  for (const TraceSlice& slice : trace.slices) {
    all.slices.push_back(slice);
    const bool waits = slice.action.kind == ActionKind::kReceiveWait ||
                       slice.action.kind == ActionKind::kReduceWait ||
                       slice.action.kind == ActionKind::kStep;
    if (slice.kind != SliceKind::kAction || !waits) continue;
    all.slices.push_back(slice);
    all.slices.back().kind = SliceKind::kWait;
  }
  return all;
}

// The host launched in an instant what a GPU then did.
RankTrace on_gpu(const RankTrace& trace) {
  RankTrace all{trace.rank, false, {}};
  for (const TraceSlice& slice : trace.slices) {
    all.slices.push_back(slice);
    if (slice.kind != SliceKind::kAction) continue;
    all.slices.back().end_ns = slice.begin_ns + 1;
    all.slices.push_back(slice);
    all.slices.back().kind = SliceKind::kOnGpu;
  }
  return all;
}

// A run whose ranks did what was planned, `slow` times as slowly, from 1 s on.
std::string trace_of(const Plan& plan, int64_t slow, int64_t ranks, bool on_gpus = false) {
  std::string text;
  TraceWriter writer([&](std::string_view part) { text += part; }, false, true, ranks);
  const std::vector<RankTrace> planned = planned_trace(plan);
  for (int64_t rank = 0; rank < ranks; ++rank) {
    RankTrace trace = planned[static_cast<size_t>(rank) % planned.size()];
    trace.rank = rank;
    for (TraceSlice& slice : trace.slices) {
      slice.step = 11;
      slice.begin_ns = 1'000'000'000 + slow * slice.begin_ns;
      slice.end_ns = 1'000'000'000 + slow * slice.end_ns;
    }
    writer.add({rank, rank, "<rank>", "", rank}, {}, on_gpus ? on_gpu(trace) : with_waits(trace));
  }
  writer.finish({});
  return text;
}

class TracedRun {
 public:
  TracedRun() : plan_(small_plan()) { std::ofstream(folder_ / "plan.yaml") << write_plan(plan_); }
  RunRecord with(const std::string& trace) const {
    std::ofstream(folder_ / "trace.json") << trace;
    return read_run_record(folder_.path());
  }
  std::string note_of(const std::string& trace) const {
    const RunRecord run = with(trace);
    CHECK(run.trace.empty());
    for (const std::string& note : run.notes)
      if (note.starts_with("left out: ")) return note.substr(10);
    return "";
  }
  std::string path() const { return folder_ / "trace.json"; }
  const Plan& plan() const { return plan_; }

 private:
  ScratchFolder folder_;
  Plan plan_;
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

int64_t count(const std::string& text, const std::string& part) {
  int64_t found = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("a page shows the planned step above the traced one, and where they differ") {
  const TracedRun traced;
  const RunRecord run = traced.with(trace_of(traced.plan(), 2, 2));
  CHECK_FALSE(run.trace.empty());
  CHECK(run.trace.front().step == 11);
  const std::string page = run_page(run);
  CHECK(has(page, "<h2>A step as it was planned and as it was measured</h2>"));
  const size_t planned = page.find("<span>stage 1 planned</span>");
  const size_t measured = page.find("<span>rank 1</span>");
  REQUIRE(planned != page.npos);
  CHECK(measured != page.npos);
  CHECK(page.find("<span>stage 0 planned</span>") < page.find("<span>rank 0</span>"));
  CHECK(page.find("<span>rank 0</span>") < planned);
  CHECK(planned < measured);
  CHECK(has(page, "<p>Step 11 of trace.json.</p>"));
  CHECK(has(page, "Off most: "));
  CHECK(has(page, "<td>backward</td>"));
  CHECK(has(page, "<td>waiting for other stages</td>"));
  CHECK(has(page, "<td>the whole step</td>"));
  // Both are on one scale: what was planned ends half way.
  int64_t end = 0;
  for (const RankTrace& trace : planned_trace(traced.plan()))
    end = std::max(end, trace.slices.front().end_ns);
  CHECK(has(page, fmt::format("data-end-ns=\"{}\"", end)));
  CHECK(has(page, fmt::format("data-end-ns=\"{}\"", 2 * end)));
  for (const char* element : {"section", "svg", "div", "table", "details", "ul", "html", "body"})
    CHECK(count(page, fmt::format("<{}>", element)) + count(page, fmt::format("<{} ", element)) ==
          count(page, fmt::format("</{}>", element)));
  for (const char* word : {"http", "<script", "src=", "href=", "<rank>", "nan", "inf,"}) {
    CAPTURE(std::string(word));
    CHECK(!has(page, word));
  }
}

TEST_CASE("of a run on GPUs the page shows what they did, not when it was launched") {
  const TracedRun traced;
  const std::string page = run_page(traced.with(trace_of(traced.plan(), 1, 2, true)));
  CHECK(has(page, "No part is off by more than 1 %."));
  CHECK(has(page, "<td>waiting for other stages</td>"));
}

TEST_CASE("a run that did what was planned is off by nothing") {
  const TracedRun traced;
  const std::string page = run_page(traced.with(trace_of(traced.plan(), 1, 2)));
  CHECK(has(page, "No part is off by more than 1 %."));
}

TEST_CASE("a plan without rates shows what was measured alone") {
  const TracedRun traced;
  RunRecord run = traced.with(trace_of(traced.plan(), 1, 2));
  run.plan->job.cluster.fp32_flops_per_s = 0;
  run.plan->job.cluster.memory_bytes_per_s = 0;
  run.plan->job.cluster.intra_host_bytes_per_s = 0;
  run.plan->job.cluster.intra_host_latency_s = 0;
  const std::string page = run_page(run);
  CHECK(has(page, "<span>rank 0</span>"));
  CHECK(!has(page, "planned</span>"));
  CHECK(has(page, "The plan predicts no times"));
}

TEST_CASE("a trace that is damaged, or of other ranks, is left out and told") {
  const TracedRun traced;
  const std::string whole = trace_of(traced.plan(), 1, 2);
  CHECK(traced.note_of(whole.substr(0, whole.size() / 2))
            .starts_with(traced.path() + ": no trace: "));
  CHECK(traced.note_of(trace_of(traced.plan(), 1, 3)) ==
        traced.path() + ": the trace has 3 ranks, but the plan has 2");
  CHECK(traced.note_of(trace_of(traced.plan(), 1, 1)) ==
        traced.path() + ": the trace has 1 rank, but the plan has 2");
  CHECK(traced.note_of(R"({"traceEvents":[]})") ==
        traced.path() + ": the trace has 0 ranks, but the plan has 2");
  // Calls alone.
  std::string calls;
  TraceWriter writer([&](std::string_view part) { calls += part; }, false, false, 2);
  for (int64_t rank = 0; rank < 2; ++rank) {
    TraceSlice call;
    call.kind = SliceKind::kCall;
    call.end_ns = 5;
    writer.add({rank, rank, "a", "", rank}, {}, {rank, false, {call}});
  }
  writer.finish({});
  CHECK(has(run_page(traced.with(calls)), "<p>The trace has no actions.</p>"));
}
