#include <doctest/doctest.h>

#include <fstream>
#include <iterator>

#include "plan/schedule_samples.h"
#include "smp/plan/schedule_picture.h"

using namespace smp;

TEST_CASE("a picture has one line per stage and one column per unit of time") {
  CHECK(draw(make_schedule(sample_parameters({.stages = 2, .microbatches = 3}))) ==
        "stage 0 | F0 F1 .  .  B0 B0 F2 B1 B1 .  B2 B2\n"
        "stage 1 | .  F0 B0 B0 F1 B1 B1 F2 B2 B2 .  .\n");
  CHECK(draw(make_schedule(sample_parameters({.microbatches = 2}))) ==
        "stage 0 | F0 B0 B0 F1 B1 B1\n");
}

TEST_CASE("without a cap, both schedules take microbatches + stages - 1 rounds of three columns") {
  for (const PipelineKind kind : {PipelineKind::kSimple, PipelineKind::kInterleaved}) {
    for (const int64_t stages : {1, 2, 3, 5}) {
      for (const int64_t microbatches : {5, 6, 9}) {
        const std::string picture = draw(make_schedule(
            sample_parameters({.stages = stages, .microbatches = microbatches, .kind = kind})));
        const size_t columns = static_cast<size_t>(3 * (microbatches + stages - 1));
        CHECK(picture.find('\n') == std::string("stage 0 |").size() + 3 * columns);
      }
    }
  }
}

TEST_CASE("docs/schedules.md shows what the generator makes") {
  std::ifstream file(SMP_SOURCE_DIR "/docs/schedules.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  for (const PipelineKind kind : {PipelineKind::kSimple, PipelineKind::kInterleaved}) {
    for (const int64_t cap : {0, 2}) {
      const std::string picture = draw(make_schedule(sample_parameters(
          {.stages = 3, .microbatches = 4, .kind = kind, .active_microbatches = cap})));
      CAPTURE(picture);
      CHECK(page.find("```\n" + picture + "```\n") != std::string::npos);
    }
  }
}
