#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

#include "plan/plan_samples.h"
#include "smp/plan/layout/schedule_of_plan.h"
#include "smp/planner/prediction/predict.h"
#include "smp/planner/report/schedule_picture.h"
#include "smp/planner/time/pipeline_timeline.h"
#include "smp/planner/time/time_model.h"

using namespace smp;
using namespace smp::report;
using namespace smp::schedule;
using namespace smp::time;

namespace {

struct Drawn {
  PipelineKind kind = PipelineKind::kInterleaved;
  int64_t stages = 3;
  int64_t microbatches = 4;
  int64_t cap = 4;
  int64_t chunks = 1;
};

Plan plan_of(const Drawn& drawn) {
  Plan plan = sample_plan(small_gpt2(), {.pipeline = drawn.stages, .pipeline_kind = drawn.kind});
  plan.job.model.num_layers = drawn.stages * 2;
  plan.job.training.microbatches = drawn.microbatches;
  plan.job.parallel.active_microbatches = drawn.cap;
  plan.job.parallel.virtual_pipeline_degree = drawn.chunks;
  return plan;
}

size_t widest_line(const std::string& text) {
  std::istringstream lines(text);
  size_t widest = 0;
  for (std::string line; std::getline(lines, line);) widest = std::max(widest, line.size());
  return widest;
}

}  // namespace

TEST_CASE("docs/schedules.md shows what smp-plan schedule draws") {
  std::ifstream file(SMP_SOURCE_DIR "/docs/schedules.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  for (const Drawn& drawn :
       {Drawn{.kind = PipelineKind::kSimple}, Drawn{.kind = PipelineKind::kInterleaved},
        Drawn{.kind = PipelineKind::kSimple, .cap = 2},
        Drawn{.kind = PipelineKind::kInterleaved, .cap = 2},
        Drawn{.kind = PipelineKind::kVirtual, .stages = 2, .chunks = 2},
        Drawn{.kind = PipelineKind::kZbH1},
        Drawn{.kind = PipelineKind::kZbV, .microbatches = 6, .cap = 6}}) {
    const std::string picture = picture_of_schedule(plan_of(drawn));
    CHECK(widest_line(picture) <= 80);
    const std::string stages = picture.substr(picture.find("0 |"));
    CAPTURE(stages);
    CHECK(page.find("```\n" + stages + "```\n") != std::string::npos);
  }
}

TEST_CASE("a schedule that is wider than the page says how wide it is") {
  const Plan plan = plan_of({.stages = 8, .microbatches = 32, .cap = 32});
  const std::string narrow = picture_of_schedule(plan);
  CHECK(widest_line(narrow) == 80);
  CHECK(narrow.find("cut off: the whole picture needs --width 154\n") != std::string::npos);
  CHECK(narrow.find("8 stages, 32 microbatches\n") != std::string::npos);
  CHECK(narrow.find("drawn: 18 microbatches; more repeat the middle\n") != std::string::npos);
  CHECK(narrow.find("live microbatches: 8, 7, 6, 5, 4, 3, 2, 1\n") != std::string::npos);
  const std::string wide = picture_of_schedule(plan, 154);
  CHECK(widest_line(wide) == 154);
  CHECK(wide.find("cut off") == std::string::npos);
}

TEST_CASE("many stages are drawn from both ends") {
  const std::string picture =
      picture_of_schedule(plan_of({.stages = 40, .microbatches = 40, .cap = 40}));
  CHECK(picture.find("\n11 |") != std::string::npos);
  CHECK(picture.find("\n.. |16 more stages\n28 |") != std::string::npos);
  CHECK(picture.find("live microbatches: 40, 39, 38, 37, 36, 35, 34, 33, ..., 8, 7, 6, 5, 4, 3, 2, "
                     "1\n") != std::string::npos);
}

TEST_CASE("a timeline has every pass once, in order, within the predicted step") {
  for (const Drawn& drawn :
       {Drawn{.kind = PipelineKind::kSimple}, Drawn{.kind = PipelineKind::kInterleaved},
        Drawn{.kind = PipelineKind::kVirtual, .stages = 2, .chunks = 2},
        Drawn{.kind = PipelineKind::kZbH1},
        Drawn{.kind = PipelineKind::kZbV, .microbatches = 6, .cap = 6}}) {
    Plan plan = plan_of(drawn);
    CHECK(pipeline_timeline(plan).empty());  // no rates
    plan.job.cluster.fp32_flops_per_s = 1e9;
    plan.job.cluster.memory_bytes_per_s = 1e9;
    plan.job.cluster.intra_host_bytes_per_s = 1e8;
    const std::vector<TimelineEvent> events = pipeline_timeline(plan);
    const int64_t passes = defers_weight_gradients(drawn.kind) ? 3 : 2;
    CHECK(static_cast<int64_t>(events.size()) ==
          drawn.stages * layout::schedule_shape(plan).chunks() * drawn.microbatches * passes);
    const int64_t step_ns = predict_time(plan).step_ns;
    for (size_t i = 0; i < events.size(); ++i) {
      CHECK(events[i].start_ns >= 0);
      CHECK(events[i].start_ns <= events[i].end_ns);
      CHECK(events[i].end_ns <= step_ns);
      if (i == 0 || events[i - 1].stage != events[i].stage) continue;
      CHECK(events[i - 1].end_ns <= events[i].start_ns);
    }
  }
}
