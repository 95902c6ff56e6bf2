#include <doctest/doctest.h>

#include <fstream>
#include <iterator>

#include "plan/plan_samples.h"
#include "smp/planner/schedule_picture.h"

using namespace smp;

TEST_CASE("docs/schedules.md shows what smp-plan schedule draws") {
  std::ifstream file(SMP_SOURCE_DIR "/docs/schedules.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  for (const PipelineKind kind : {PipelineKind::kSimple, PipelineKind::kInterleaved}) {
    for (const int64_t cap : {4, 2}) {
      Plan plan = sample_plan(small_gpt2(), {.pipeline = 3, .pipeline_kind = kind});
      plan.job.parallel.active_microbatches = cap;
      const std::string picture = picture_of_schedule(plan);
      const std::string stages = picture.substr(picture.find("stage 0"));
      CAPTURE(stages);
      CHECK(page.find("```\n" + stages + "```\n") != std::string::npos);
    }
  }
}
