#include "smp/planner/runpage/run_page.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "files_and_errors.h"
#include "planner/run_samples.h"
#include "scratch_folder.h"
#include "smp/plan/planfile/plan_file.h"
#include "smp/planner/runs/run_record.h"

using namespace smp;
using namespace smp::planfile;
using namespace smp::runinfo;
using namespace smp::runpage;
using namespace smp::runs;
using namespace smp::system;

namespace {

void write(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

HostUsage sample(int second, int ranks) {
  HostUsage usage;
  usage.time = std::chrono::system_clock::time_point(std::chrono::seconds(1'795'262'400 + second));
  usage.host = "<a>";
  usage.memory_total_bytes = 1 << 30;
  for (int rank = 0; rank < ranks; ++rank)
    usage.ranks.push_back({rank, 1, 0.25 * rank + 0.5, (100 + rank) << 20});
  usage.gpus = {{0, 90 + second, 60LL << 30, 141LL << 30, 612.5, {{0, 59LL << 30}}}};
  return usage;
}

// What a run of small_plan() leaves: ten steps, three samples, a timeline.
void leave_run(const std::string& folder) {
  const Plan plan = small_plan();
  write(folder + "/plan.yaml", write_plan(plan));
  write(folder + "/report.json", report_of(plan, 1.25, 2).dump());
  std::string steps, usage;
  for (int step = 1; step <= 10; ++step)
    steps +=
        fmt::format(R"({{"step": {}, "loss": {}, "step_s": 0.{:02}, "exposed_s": 0.00{:02}, )"
                    R"("tokens_per_s": 1000}})"
                    "\n",
                    step, step == 4 ? "null" : fmt::format("{}", 5.0 - 0.25 * step), step, step);
  for (int second = 0; second < 3; ++second) usage += usage_json(sample(second, 2)) + "\n";
  write(folder + "/metrics.jsonl", steps);
  write(folder + "/usage.jsonl", usage);
  for (int64_t rank : {1, 0})
    write(fmt::format("{}/timeline/rank-{}.json", folder, rank),
          timeline_json({rank,
                         3,
                         1'000'000'000 + rank * 1000,
                         false,
                         {{"forward", 0, 0, false, 0, 40'000},
                          {"forward", 0, 1, false, 40'000, 60'000},
                          {"receive", 1, -1, true, 60'000, 90'000},
                          {"backward", 0, 1, false, 90'000, 100'000}}}));
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

bool has(const std::string& text, const std::string& part) { return count(text, part) > 0; }

}  // namespace

TEST_CASE("a run's page shows what was measured beside the plan's figures") {
  ScratchFolder folder;
  leave_run(folder.path());
  const RunRecord run = read_run_record(folder.path());
  CHECK(run.notes.empty());
  const std::string page = run_page(run);
  const Plan plan = small_plan();
  // Every byte that is predicted of a rank's weights, and every one that was counted.
  CHECK(count(page, "data-name=\"weights\" data-bytes=\"7\"") == 2);
  for (const RankPrediction& rank : plan.predictions.ranks) {
    int64_t weights = 0;
    for (const MemoryTerm& term : rank.terms)
      weights += term.category == MemoryCategory::kWeights ? term.bytes : 0;
    CHECK(has(page, fmt::format("data-name=\"weights\" data-bytes=\"{}\"", weights)));
  }
  // The step that has no finite loss parts the line.
  CHECK(count(page, "<polyline class=\"s0\" data-name=\"loss\"") == 2);
  CHECK(count(page, "<polyline class=\"s0\" data-name=\"time of a step\"") == 1);
  CHECK(count(page, "<polyline class=\"s1\" data-name=\"exposed communication\"") == 1);
  CHECK(count(page, "<line class=\"level\"") == 1);
  CHECK(has(page, "predicted: "));
  // Layers of one pass are one box; rank 1 began a microsecond later.
  CHECK(has(page, "data-begin-ns=\"0\" data-end-ns=\"60000\"><title>forward of microbatch 0: 60"));
  CHECK(has(page, "data-begin-ns=\"61000\" data-end-ns=\"91000\"><title>waiting in receive"));
  CHECK(has(page, "<td class=\"number\">30.0 %</td>"));
  CHECK(has(page, "data-name=\"rank    1\""));
  CHECK(has(page, "data-name=\"&lt;a&gt; GPU 0\""));
  CHECK(has(page, "GPUs: power"));
}

TEST_CASE("a page is whole: all that is opened is closed, nothing is fetched, no script runs") {
  ScratchFolder folder;
  leave_run(folder.path());
  const std::string page = run_page(read_run_record(folder.path()));
  for (const char* element : {"section", "svg", "div", "table", "details", "ul", "html", "body"})
    CHECK(count(page, fmt::format("<{}>", element)) + count(page, fmt::format("<{} ", element)) ==
          count(page, fmt::format("</{}>", element)));
  for (const char* word : {"http", "<script", "src=", "href=", "<a>", "nan", "inf,"}) {
    CAPTURE(std::string(word));
    CHECK(!has(page, word));
  }
}

TEST_CASE("of many ranks the lowest, the median and the highest are drawn") {
  ScratchFolder folder;
  std::string usage;
  for (int second = 0; second < 3; ++second) usage += usage_json(sample(second, 20)) + "\n";
  write(folder / "usage.jsonl", usage);
  const std::string page = run_page(read_run_record(folder.path()));
  CHECK(has(page, "data-name=\"lowest of 20 ranks\""));
  CHECK(!has(page, "data-name=\"rank"));
}

TEST_CASE("a run's text: memory, time and wire beside the plan's, CPUs and GPUs") {
  ScratchFolder folder;
  leave_run(folder.path());
  const std::string text = run_text(read_run_record(folder.path()));
  CHECK(has(text, "loss 4.7500 -> 2.5000, steps 1 to 10"));
  CHECK(has(text, "exposed communication of rank 0 600.0 us a step, 1.0 % of it\n"));
  CHECK(has(text, "rank 1: peak"));
  CHECK(has(text, "1               0.75        0.75        101.00 MiB\n"));
  CHECK(has(text, "<a> GPU 0: 91 % busy, 60.00 GiB and 612 W at most\n"));
}

TEST_CASE("a run that goes on, or was killed, is told as far as it is") {
  ScratchFolder folder;
  leave_run(folder.path());
  std::filesystem::remove(folder / "report.json");
  std::filesystem::remove_all(folder / "timeline");
  std::ofstream(folder / "metrics.jsonl", std::ios::app) << R"({"step": 11, "lo)";
  const RunRecord run = read_run_record(folder.path());
  CHECK(run.steps.size() == 10);
  CHECK(run.notes == std::vector<std::string>{"no report.json: the run has not ended, or it failed",
                                              "no timeline: the run made fewer than three steps"});
  CHECK(has(run_page(run), "no report.json: the run has not ended, or it failed"));
}

TEST_CASE("a run whose numbers went elsewhere is told as such") {
  ScratchFolder folder;
  leave_run(folder.path());
  std::filesystem::remove(folder / "metrics.jsonl");
  CHECK(read_run_record(folder.path()).notes == std::vector<std::string>{"no step was completed"});
  Plan plan = read_plan(folder / "plan.yaml");
  plan.job.training.metrics = {"tensorboard"};
  write(folder / "plan.yaml", write_plan(plan));
  CHECK(read_run_record(folder.path()).notes ==
        std::vector<std::string>{"no metrics.jsonl: training.metrics does not ask for it"});
}

TEST_CASE("without a plan, files of a run's names are a program's own") {
  ScratchFolder folder;
  leave_run(folder.path());
  const RunRecord whole = read_run_record(folder.path());
  std::filesystem::remove(folder / "plan.yaml");
  write(folder / "metrics.jsonl", "{\"epoch\": 1}\n");
  const RunRecord run = read_run_record(folder.path());
  CHECK(run.steps.empty());
  CHECK(!run.report);
  CHECK(run.timelines.empty());
  CHECK(run.usage == whole.usage);
  CHECK(has(run_page(run), "GPUs: power"));
  CHECK(has(run_text(run), "<a> GPU 0: 91 % busy"));
  // Nor does a page need a plan for what it is given.
  RunRecord without = whole;
  without.plan.reset();
  CHECK(count(run_page(without), "data-name=\"time of a step\"") == 1);
}

TEST_CASE("damaged files of a run are named with their line") {
  const auto error_with = [](const std::string& file, const std::string& text) {
    ScratchFolder folder;
    leave_run(folder.path());
    write(folder / file, text);
    const std::string error = error_of([&] { read_run_record(folder.path()); });
    return error.starts_with(folder.path()) ? error.substr(folder.path().size() + 1) : error;
  };
  CHECK(error_with("metrics.jsonl", "{\"step\": 1}\n")
            .starts_with("metrics.jsonl:1: not a step of a run: "));
  CHECK(error_with("report.json", "{\"plan\": ")
            .starts_with("report.json: not valid JSON: error at byte"));
  CHECK(error_of([] { read_run_record("/nowhere"); }) == "'/nowhere' is not the folder of a run");
  ScratchFolder empty;
  CHECK(error_of([&] { read_run_record(empty.path()); }) ==
        fmt::format("'{}' has neither plan.yaml nor a sample in usage.jsonl to report",
                    empty.path()));
}

TEST_CASE("a sample that was cut is left out and told") {
  ScratchFolder folder;
  leave_run(folder.path());
  const std::string line = usage_json(sample(0, 1));
  write(folder / "usage.jsonl", line + "\n" + line.substr(0, 40) + "\n" + line + "\n{}\n");
  const RunRecord run = read_run_record(folder.path());
  CHECK(run.usage.size() == 2);
  REQUIRE(run.notes.size() == 1);
  CHECK(run.notes.front().starts_with("left out: 2 damaged lines of " + (folder / "usage.jsonl") +
                                      ", the first: not a sample of a host's usage: "));
  CHECK(has(run_text(run), "left out: 2 damaged lines"));
}

TEST_CASE("timelines that are damaged, of another step or of no rank are left out and told") {
  ScratchFolder folder;
  leave_run(folder.path());
  const std::string drawn = run_page(read_run_record(folder.path()));
  const std::string at = folder / "timeline/";
  write(at + "rank-0.json.tmp-12", "{\"rank\": ");
  CHECK(run_page(read_run_record(folder.path())) == drawn);
  const auto notes_with = [&](const std::string& text, size_t timelines) {
    write(at + "rank-9.json", text);
    const RunRecord run = read_run_record(folder.path());
    CHECK(run.timelines.size() == timelines);
    REQUIRE(run.notes.size() == 1);
    CHECK(has(run_page(run), "left out: "));
    return run.notes.front();
  };
  CHECK(notes_with("{\"rank\": ", 2)
            .starts_with("left out: " + at + "rank-9.json: not a timeline of a step: "));
  CHECK(notes_with(R"({"rank": 0, "step": 3, "began_ns": 5, "cut": false, "pieces": [{"phase": )"
                   R"("x", "microbatch": 0, "layer": 0, "waiting": false, "begin_ns": 9, )"
                   R"("end_ns": 8}]})",
                   2) == "left out: " + at + "rank-9.json: piece 1 ends before it begins");
  CHECK(notes_with(timeline_json({9, 3, 5, false, {}}), 2) ==
        "left out: " + at + "rank-9.json: the plan has no such rank");
  CHECK(notes_with(timeline_json({1, 8, 5, false, {}}), 2) ==
        "left out: " + at + "rank-9.json: the timeline is of step 8, the last one of step 3");
  // That of the last start counts.
  write(at + "rank-0.json", timeline_json({0, 8, 2'000'000'000, false, {}}));
  std::filesystem::remove(at + "rank-9.json");
  const RunRecord run = read_run_record(folder.path());
  REQUIRE(run.timelines.size() == 1);
  CHECK(run.timelines.front().step == 8);
}

TEST_CASE("the third step of a rank is recorded, with what it waited for") {
  StepRecorder recorder;
  for (int64_t step = 1; step <= 2; ++step) {
    recorder.enter("start", step, -1, -1);
    recorder.enter("forward", step, 0, 0);
    recorder.wait(true);
    recorder.wait(false);
    CHECK(!recorder.is_recording());
  }
  recorder.enter("start", 3, -1, -1);
  recorder.enter("forward", 3, 1, 2);
  recorder.wait(true);
  recorder.wait(false);
  CHECK(recorder.is_recording());
  const StepTimeline timeline = recorder.take(5);
  CHECK(!recorder.is_recording());
  CHECK(timeline.rank == 5);
  CHECK(timeline.step == 3);
  REQUIRE(timeline.pieces.size() >= 3);
  CHECK(timeline.pieces[1].phase == "forward");
  CHECK(timeline.pieces[1].microbatch == 1);
  CHECK(timeline.pieces[2].waiting);
  for (size_t i = 1; i < timeline.pieces.size(); ++i)
    CHECK(timeline.pieces[i].begin_ns == timeline.pieces[i - 1].end_ns);
  CHECK(parse_timeline("x", timeline_json(timeline)) == timeline);
  recorder.enter("start", 4, -1, -1);
  CHECK(!recorder.is_recording());
}
