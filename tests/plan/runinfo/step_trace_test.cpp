#include "smp/plan/runinfo/step_trace.h"

#include <doctest/doctest.h>

#include <thread>

#include "files_and_errors.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/runinfo/trace_file.h"
#include "trace_check.h"

using namespace smp;
using namespace smp::mesh;
using namespace smp::runinfo;
using namespace smp::schedule;
using namespace smp::test;

namespace {

Action forward(int32_t microbatch, int32_t layer) {
  return {.kind = ActionKind::kForward, .microbatch = microbatch, .layer = layer};
}

std::string file_of(const std::vector<std::pair<TraceProcess, RankTrace>>& traces,
                    const TraceClock& clock = {}, bool planned = false, bool flows = true) {
  std::string text;
  TraceWriter writer([&](std::string_view part) { text += part; }, planned, flows, 4);
  for (const auto& [process, trace] : traces) writer.add(process, clock, trace);
  writer.finish({{"job", "a \"job\""}});
  return text;
}

TraceSlice call(CollectiveOp op, int64_t begin, int64_t end, int peer = -1) {
  TraceSlice slice;
  slice.kind = SliceKind::kCall;
  slice.op = op;
  slice.axis = Axis::kPipeline;
  slice.begin_ns = begin;
  slice.end_ns = end;
  slice.peer = peer;
  slice.label = {"pipeline.activations"};
  return slice;
}

}  // namespace

TEST_CASE("a tracer records nothing outside of its steps, and in them every slice within another") {
  StepTracer tracer;
  tracer.reserve(100);
  CHECK(tracer.begin_action(forward(0, 0)) == StepTracer::kNone);
  CHECK(tracer.begin_wait(StepTracer::kNone) == StepTracer::kNone);
  tracer.end(StepTracer::kNone);
  tracer.begin_step(10);
  const size_t action = tracer.begin_action(forward(2, 3));
  const size_t call_place =
      tracer.begin_call(CollectiveOp::kAllReduce, Axis::kTensor, "tensor.forward", 4096, 2, -1);
  const size_t wait = tracer.begin_wait(call_place);
  tracer.end(wait);
  tracer.end(call_place);
  tracer.end_action(action, 1 << 20);
  tracer.end_step();
  CHECK_FALSE(tracer.is_on());
  CHECK(tracer.begin_action(forward(0, 0)) == StepTracer::kNone);
  const std::vector<TraceSlice>& slices = tracer.slices();
  REQUIRE(slices.size() == 4);
  CHECK(slices[0].kind == SliceKind::kStep);
  CHECK(slices[1].action == forward(2, 3));
  CHECK(slices[1].bytes == 1 << 20);
  CHECK(slices[2].label_text() == "tensor.forward");
  CHECK(slices[3].label_text() == "tensor.forward");
  for (const TraceSlice& slice : slices) {
    CHECK(slice.step == 10);
    CHECK(slices[0].begin_ns <= slice.begin_ns);
    CHECK(slice.begin_ns <= slice.end_ns);
    CHECK(slice.end_ns <= slices[0].end_ns);
  }
}

TEST_CASE("a call of a traced step is ended after it: one that is ended again keeps its end") {
  StepTracer tracer;
  tracer.reserve(10);
  tracer.begin_step(1);
  const size_t place =
      tracer.begin_call(CollectiveOp::kAllGather, Axis::kShard, "shard.weights", 8, 2, -1);
  tracer.end_step();
  CHECK(tracer.slices()[place].end_ns == TraceSlice::kOpen);
  tracer.end(place);
  const int64_t end = tracer.slices()[place].end_ns;
  CHECK(end >= tracer.slices()[0].end_ns);
  tracer.end(place);
  CHECK(tracer.slices()[place].end_ns == end);
  tracer.clear();
  tracer.end(place);  // the memory is gone
}

TEST_CASE("a tracer that is full says so, takes no memory and loses the last slices") {
  StepTracer tracer;
  tracer.reserve(3);
  const auto* memory = tracer.slices().data();
  tracer.begin_step(1);
  for (int i = 0; i < 5; ++i) tracer.end_action(tracer.begin_action(forward(i, 0)), 0);
  tracer.end_step();
  CHECK(tracer.cut());
  CHECK(tracer.slices().size() == 3);
  CHECK(tracer.slices().data() == memory);
  CHECK(tracer.slices()[0].end_ns != TraceSlice::kOpen);
}

TEST_CASE("with marks, what the GPU did for each action stands behind the slices of the step") {
  class Marks final : public ActionMarks {
   public:
    void set(size_t mark) override { set_.push_back(mark); }
    int64_t ns_of(size_t mark) override { return 1000 * static_cast<int64_t>(mark); }
    std::vector<size_t> set_;
  };
  Marks marks;
  StepTracer tracer;
  tracer.reserve(7);
  tracer.mark_actions(&marks);
  for (const int32_t step : {4, 5}) {
    tracer.begin_step(step);
    for (const ActionKind kind : {ActionKind::kForward, ActionKind::kBackward})
      tracer.end_action(tracer.begin_action({.kind = kind, .microbatch = step}), 77);
    tracer.end_step();
    if (step == 5) break;
    tracer.add_gpu_slices();
    CHECK(marks.set_ == std::vector<size_t>{0, 1, 2, 3});
    REQUIRE(tracer.slices().size() == 5);
    const TraceSlice& second = tracer.slices()[4];
    CHECK(second.kind == SliceKind::kOnGpu);
    CHECK(second.action == Action{.kind = ActionKind::kBackward, .microbatch = 4});
    CHECK(second.step == 4);
    CHECK(second.begin_ns == 2000);
    CHECK(second.end_ns == 3000);
    CHECK(second.bytes == 0);
    marks.set_.clear();
  }
  // The next step's marks are the same ones again; of a mark without room nothing stays.
  CHECK(marks.set_ == std::vector<size_t>{0, 1});
  CHECK(tracer.cut());
  tracer.add_gpu_slices();
  CHECK(tracer.slices().size() == 7);
}

TEST_CASE("long labels are cut, not written behind their place") {
  StepTracer tracer;
  tracer.reserve(2);
  tracer.begin_step(1);
  const size_t place =
      tracer.begin_call(CollectiveOp::kBarrier, Axis::kWorld, std::string(100, 'a'), 0, 2, -1);
  CHECK(tracer.slices()[place].label_text() == std::string(31, 'a'));
}

TEST_CASE("a file of two ranks: slices, an arrow from the send to the receive, live memory") {
  RankTrace sender{0, false, {}}, receiver{1, false, {}};
  TraceSlice action;
  action.action = {.kind = ActionKind::kSend, .payload = Payload::kActivation, .peer = 1};
  action.begin_ns = 1'000'000'500;
  action.end_ns = 1'000'002'001;
  action.bytes = 12345;
  sender.slices = {action, call(CollectiveOp::kSend, 1'000'000'900, 1'000'004'000, 1),
                   call(CollectiveOp::kSend, 1'000'001'000, 1'000'005'000, 1)};
  receiver.slices = {call(CollectiveOp::kRecv, 1'000'000'600, 1'000'004'100, 0),
                     call(CollectiveOp::kRecv, 1'000'004'200, 1'000'004'200, 0)};
  const std::string text =
      file_of({{{0, 0, "rank 0", "", 1}, sender}, {{1, 1, "rank 1", "clock <b>", 3}, receiver}},
              {.origin_ns = 1'000'000'000, .offset_ns = 0, .until_ns = 0});
  const TraceCheck check(text);
  CHECK(check.problems() == std::vector<std::string>{});
  CHECK(check.flows() == 2);
  CHECK(check.counters() == 1);
  CHECK(check.about().at("job") == "a \"job\"");
  CHECK(check.about().at("kind") == "measured");
  // Both messages are under way at once.
  CHECK(check.names_on("pipeline group 2") == std::set<std::string>{"pipeline.activations"});
  const std::vector<ReadSlice> slices = parse_trace("a.json", text);
  REQUIRE(slices.size() == 5);
  CHECK(slices[0].name == "send");
  CHECK(slices[0].category == "pipeline");
  CHECK(slices[0].begin_ns == 500);
  CHECK(slices[0].end_ns == 2001);
  CHECK(slices[4].category == "recv");
  CHECK(text.find(R"("args":{"step":0,"stage":1,"payload":"activation"})") != std::string::npos);
}

TEST_CASE("what has not ended is open up to the end of the trace, and marked") {
  RankTrace trace{0, false, {call(CollectiveOp::kRecv, 100, TraceSlice::kOpen, 1)}};
  const std::string text = file_of({{{0, 0, "rank 0", "", 1}, trace}},
                                   {.origin_ns = 100, .until_ns = 700}, false, false);
  const TraceCheck check(text);
  CHECK(check.problems() == std::vector<std::string>{});
  CHECK(check.open() == 1);
  CHECK(check.flows() == 0);
  CHECK(parse_trace("a.json", text).front().end_ns == 600);
}

TEST_CASE("what a GPU did has a thread of its own, with the action's words") {
  TraceSlice launch, on_gpu;
  launch.action = on_gpu.action = {.kind = ActionKind::kForward, .microbatch = 3, .layer = 2};
  launch.begin_ns = 10;
  launch.end_ns = 20;
  launch.bytes = 5;
  on_gpu.kind = SliceKind::kOnGpu;
  on_gpu.begin_ns = 15;
  on_gpu.end_ns = 4000;
  const std::string text = file_of({{{0, 0, "rank 0", "", 1}, {0, false, {launch, on_gpu, on_gpu}}},
                                    {{1, 1, "rank 1", "", 3}, {1, false, {launch}}}},
                                   {});
  const TraceCheck check(text);
  CHECK(check.problems() == std::vector<std::string>{});
  CHECK(check.counters() == 2);  // of the host's actions alone
  CHECK(check.names_on("GPU") == std::set<std::string>{"forward"});
  CHECK(text.find("\"GPU\"") == text.rfind("\"GPU\""));
  const std::vector<ReadSlice> slices = parse_trace("a.json", text);
  REQUIRE(slices.size() == 4);
  CHECK(slices[1].thread == kGpuThread);
  CHECK(slices[1].category == "compute");
  CHECK(slices[1].microbatch == 3);
  CHECK(slices[1].end_ns == 4000);
}

TEST_CASE("the clock of another host is moved by its offset") {
  RankTrace trace{0, false, {call(CollectiveOp::kBarrier, 1000, 2000)}};
  const std::string text =
      file_of({{{0, 0, "rank 0", "", 1}, trace}}, {.origin_ns = 500, .offset_ns = 2500});
  CHECK(parse_trace("a.json", text).front().begin_ns == 3000);
  CHECK(parse_trace("a.json", text).front().end_ns == 4000);
}

TEST_CASE("the checker of traces finds what is wrong") {
  const auto problem = [](const std::string& events) {
    const TraceCheck check(
        R"({"displayTimeUnit":"ms","traceEvents":[)"
        R"({"name":"process_name","ph":"M","pid":1,"args":{"name":"a"}},)"
        R"({"name":"thread_name","ph":"M","pid":1,"tid":1,"args":{"name":"a"}},)" +
        events + "]}");
    return check.problems().empty() ? "" : check.problems().front();
  };
  const auto slice = [](const std::string& ts, const std::string& dur) {
    return R"({"name":"a","cat":"b","ph":"X","pid":1,"tid":1,"args":{},"ts":)" + ts + R"(,"dur":)" +
           dur + "}";
  };
  CHECK(problem(slice("1", "2")).empty());
  CHECK(problem(slice("1", "-2")).starts_with("a negative time"));
  CHECK(problem(slice("1", "2") + "," + slice("2", "2")).find("ends after 'a' around it") !=
        std::string::npos);
  CHECK(problem(R"({"name":"m","cat":"b","ph":"s","id":1,"pid":1,"tid":1,"ts":1})"
                "," +
                slice("1", "2")) == "arrow 1 has 1 begins and 0 ends");
  CHECK(TraceCheck("[").problems().size() == 1);
}

TEST_CASE("what is no trace is refused with its name") {
  const auto error = [](const std::string& text) {
    return error_of([&] { parse_trace("t.json", text); });
  };
  CHECK(error("{").starts_with("t.json: no trace: "));
  CHECK(error("{}").starts_with("t.json: no trace: "));
  CHECK(error(R"({"traceEvents":[{"ph":"X","pid":0,"tid":1,"name":"a","cat":"b","ts":1,"dur":-1,)"
              R"("args":{}}]})") == "t.json: slice 1 ends before it begins");
  CHECK(error(R"({"traceEvents":[{"ph":"X","pid":0,"tid":1,"name":"a","cat":"b","ts":1e300,)"
              R"("dur":1,"args":{}}]})") == "t.json: not a trace: 1e+300 microseconds");
  CHECK(error(R"({"traceEvents":[{"ph":"X","pid":1e308,"tid":1,"name":"a","cat":"b","ts":1,)"
              R"("dur":1,"args":{}}]})") == "t.json: not a trace: 1e+308 is not a whole number");
  CHECK(error(R"({"traceEvents":[{"ph":"X","pid":0,"tid":1,"name":"a","cat":"b","ts":1,"dur":1,)"
              R"("args":{"step":"3"}}]})") == "t.json: not a trace: \"3\" is not a whole number");
  CHECK(parse_trace("t.json", R"({"traceEvents":[]})").empty());
}
