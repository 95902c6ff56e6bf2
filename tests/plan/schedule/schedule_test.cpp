#include <doctest/doctest.h>

#include <algorithm>

#include "plan/plan_samples.h"
#include "plan/schedule_samples.h"
#include "smp/plan/layout/layout.h"
#include "smp/plan/layout/schedule_of_plan.h"

using namespace smp;
using namespace smp::layout;
using namespace smp::schedule;

namespace {

// "F0 F1 B0 ...": passes of a stage, by the first layer that each computes.
std::string passes(const Schedule& schedule, int64_t stage) {
  std::string text;
  const Action* previous = nullptr;
  for (const Action& action : schedule.actions[static_cast<size_t>(stage)]) {
    if (action.kind != ActionKind::kForward && action.kind != ActionKind::kBackward) continue;
    const bool same = previous != nullptr && previous->kind == action.kind &&
                      previous->microbatch == action.microbatch;
    previous = &action;
    if (same) continue;
    if (!text.empty()) text += ' ';
    text += action.kind == ActionKind::kForward ? 'F' : 'B';
    text += std::to_string(action.microbatch);
  }
  return text;
}

Schedule schedule_of(const SampleSchedule& sample) {
  return make_schedule(sample_parameters(sample));
}

}  // namespace

TEST_CASE("one stage, two microbatches: every action of the step") {
  const Schedule schedule = schedule_of({.microbatches = 2, .buckets = true});
  CHECK(listing(schedule, 0) == std::vector<std::string>{
                                    "forward microbatch 0 layer 0",
                                    "forward microbatch 0 layer 1",
                                    "forward microbatch 0 layer 2",
                                    "backward microbatch 0 layer 2",
                                    "backward microbatch 0 layer 1",
                                    "backward microbatch 0 layer 0",
                                    "forward microbatch 1 layer 0",
                                    "forward microbatch 1 layer 1",
                                    "forward microbatch 1 layer 2",
                                    "backward microbatch 1 layer 2",
                                    "reduce bucket 0",
                                    "backward microbatch 1 layer 1",
                                    "reduce bucket 1",
                                    "backward microbatch 1 layer 0",
                                    "reduce bucket 2",
                                    "reduce_wait bucket 0",
                                    "gradient_norm bucket 0",
                                    "reduce_wait bucket 1",
                                    "gradient_norm bucket 1",
                                    "reduce_wait bucket 2",
                                    "gradient_norm bucket 2",
                                    "step",
                                    "update bucket 2",
                                    "update bucket 1",
                                    "update bucket 0",
                                });
}

TEST_CASE("two tied and sharded stages: every action of the step") {
  const SampleSchedule sample{
      .stages = 2, .microbatches = 2, .buckets = true, .sharded = true, .tied = true};
  const Schedule schedule = schedule_of(sample);
  CHECK(listing(schedule, 0) == std::vector<std::string>{
                                    "forward microbatch 0 layer 0",
                                    "gather_wait bucket 0",
                                    "forward microbatch 0 layer 1",
                                    "send activation microbatch 0 to stage 1",
                                    "receive gradient microbatch 0 from stage 1",
                                    "forward microbatch 1 layer 0",
                                    "forward microbatch 1 layer 1",
                                    "send activation microbatch 1 to stage 1",
                                    "send_wait activation microbatch 0 to stage 1",
                                    "receive_wait gradient microbatch 0 from stage 1",
                                    "receive gradient microbatch 1 from stage 1",
                                    "backward microbatch 0 layer 1",
                                    "backward microbatch 0 layer 0",
                                    "send_wait activation microbatch 1 to stage 1",
                                    "receive_wait gradient microbatch 1 from stage 1",
                                    "receive tied_gradient from stage 1",
                                    "backward microbatch 1 layer 1",
                                    "reduce bucket 0",
                                    "backward microbatch 1 layer 0",
                                    "receive_wait tied_gradient from stage 1",
                                    "reduce bucket 1",
                                    "reduce_wait bucket 0",
                                    "gradient_norm bucket 0",
                                    "reduce_wait bucket 1",
                                    "gradient_norm bucket 1",
                                    "step",
                                    "update bucket 1",
                                    "gather bucket 1",
                                    "update bucket 0",
                                    "gather bucket 0",
                                    "gather_wait bucket 1",
                                    "send tied_weight to stage 1",
                                    "send_wait tied_weight to stage 1",
                                });
  CHECK(listing(schedule, 1) == std::vector<std::string>{
                                    "receive activation microbatch 0 from stage 0",
                                    "receive_wait activation microbatch 0 from stage 0",
                                    "gather_wait bucket 1",
                                    "forward microbatch 0 layer 2",
                                    "gather_wait bucket 0",
                                    "forward microbatch 0 layer 3",
                                    "receive activation microbatch 1 from stage 0",
                                    "backward microbatch 0 layer 3",
                                    "backward microbatch 0 layer 2",
                                    "send gradient microbatch 0 to stage 0",
                                    "receive_wait activation microbatch 1 from stage 0",
                                    "forward microbatch 1 layer 2",
                                    "forward microbatch 1 layer 3",
                                    "send_wait gradient microbatch 0 to stage 0",
                                    "backward microbatch 1 layer 3",
                                    "reduce bucket 0",
                                    "backward microbatch 1 layer 2",
                                    "reduce bucket 1",
                                    "send gradient microbatch 1 to stage 0",
                                    "send tied_gradient to stage 0",
                                    "send_wait gradient microbatch 1 to stage 0",
                                    "send_wait tied_gradient to stage 0",
                                    "reduce_wait bucket 0",
                                    "gradient_norm bucket 0",
                                    "reduce_wait bucket 1",
                                    "gradient_norm bucket 1",
                                    "step",
                                    "receive tied_weight from stage 0",
                                    "update bucket 1",
                                    "gather bucket 1",
                                    "update bucket 0",
                                    "gather bucket 0",
                                    "receive_wait tied_weight from stage 0",
                                });
}

TEST_CASE("early updates run in the order of the reductions, gathers in that of the next step") {
  const SampleSchedule sample{.buckets = true, .sharded = true, .early_updates = true};
  const ScheduleParameters parameters = sample_parameters(sample);
  const Schedule schedule = make_schedule(parameters);
  CHECK(verify(schedule, parameters).value_or("all is well") == "all is well");
  CHECK(listing(schedule, 0) == std::vector<std::string>{
                                    "gather_wait bucket 2",
                                    "forward microbatch 0 layer 0",
                                    "gather_wait bucket 1",
                                    "forward microbatch 0 layer 1",
                                    "gather_wait bucket 0",
                                    "forward microbatch 0 layer 2",
                                    "backward microbatch 0 layer 2",
                                    "reduce bucket 0",
                                    "backward microbatch 0 layer 1",
                                    "reduce bucket 1",
                                    "backward microbatch 0 layer 0",
                                    "reduce bucket 2",
                                    "reduce_wait bucket 0",
                                    "update bucket 0",
                                    "reduce_wait bucket 1",
                                    "update bucket 1",
                                    "reduce_wait bucket 2",
                                    "update bucket 2",
                                    "gather bucket 2",
                                    "gather bucket 1",
                                    "gather bucket 0",
                                    "step",
                                });
}

TEST_CASE("updates wait where the norm, fp16 or what counts must be known") {
  TrainingSpec training;
  training.optimizer.gradient_clipping = 0;
  CHECK_FALSE(why_updates_wait(training).has_value());
  training.data_loss_mask = true;
  CHECK(why_updates_wait(training) ==
        "the mean over the tokens that count needs their number in the global batch");
  training.data_loss_mask = false;
  training.precision = Precision::kFp16;
  CHECK(why_updates_wait(training) ==
        "fp16's loss scale needs to know that all gradients are finite");
  training.optimizer.gradient_clipping = 0.5;
  CHECK(why_updates_wait(training) == "gradient_clipping (0.5) needs the norm of all gradients");
}

TEST_CASE("1F1B: as many forward passes ahead as stages follow, then in turn") {
  const Schedule schedule = schedule_of({.stages = 4, .microbatches = 5});
  CHECK(passes(schedule, 0) == "F0 F1 F2 F3 B0 F4 B1 B2 B3 B4");
  CHECK(passes(schedule, 1) == "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4");
  CHECK(passes(schedule, 2) == "F0 F1 B0 F2 B1 F3 B2 F4 B3 B4");
  CHECK(passes(schedule, 3) == "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4");
  CHECK(schedule.live_bound == std::vector<int64_t>{4, 3, 2, 1});
}

TEST_CASE("1F1B with fewer microbatches than stages, and with as many") {
  CHECK(schedule_of({.stages = 4, .microbatches = 2}).live_bound ==
        std::vector<int64_t>{2, 2, 2, 1});
  CHECK(passes(schedule_of({.stages = 4, .microbatches = 2}), 0) == "F0 F1 B0 B1");
  CHECK(passes(schedule_of({.stages = 2, .microbatches = 2}), 0) == "F0 F1 B0 B1");
  CHECK(passes(schedule_of({.stages = 2, .microbatches = 2}), 1) == "F0 B0 F1 B1");
}

TEST_CASE("GPipe: all forward, then all backward, in rounds when capped") {
  SampleSchedule sample{.stages = 2, .microbatches = 5, .kind = PipelineKind::kSimple};
  CHECK(passes(schedule_of(sample), 0) == "F0 F1 F2 F3 F4 B0 B1 B2 B3 B4");
  CHECK(schedule_of(sample).live_bound == std::vector<int64_t>{5, 5});
  sample.active_microbatches = 2;
  CHECK(passes(schedule_of(sample), 0) == "F0 F1 B0 B1 F2 F3 B2 B3 F4 B4");
  CHECK(passes(schedule_of(sample), 1) == "F0 F1 B0 B1 F2 F3 B2 B3 F4 B4");
  CHECK(schedule_of(sample).live_bound == std::vector<int64_t>{2, 2});
}

TEST_CASE("active_microbatches caps 1F1B on the stages that would hold more") {
  const Schedule schedule = schedule_of({.stages = 4, .microbatches = 6, .active_microbatches = 2});
  CHECK(schedule.live_bound == std::vector<int64_t>{2, 2, 2, 1});
  CHECK(passes(schedule, 0) == "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 B5");
}

TEST_CASE("every generated schedule proves itself, with tight live bounds") {
  for (const PipelineKind kind : {PipelineKind::kSimple, PipelineKind::kInterleaved})
    for (int64_t stages = 1; stages <= 6; ++stages)
      for (int64_t microbatches = 1; microbatches <= 9; ++microbatches)
        for (int64_t cap = 0; cap <= microbatches; ++cap)
          for (int options = 0; options < 32; ++options) {
            const SampleSchedule sample{.stages = stages,
                                        .microbatches = microbatches,
                                        .kind = kind,
                                        .active_microbatches = cap,
                                        .buckets = (options & 1) != 0 || (options & 2) != 0,
                                        .sharded = (options & 2) != 0,
                                        .early_updates = (options & 16) != 0,
                                        .tied = (options & 4) != 0 && stages > 1,
                                        .kv_replicated = (options & 8) != 0};
            const ScheduleParameters parameters = sample_parameters(sample);
            const Schedule schedule = make_schedule(parameters);
            const auto counter_example = verify(schedule, parameters);
            if (counter_example) FAIL(*counter_example);
            for (int64_t stage = 0; stage < stages; ++stage) {
              REQUIRE(max_live(schedule, stage) == schedule.live_bound[static_cast<size_t>(stage)]);
            }
          }
}

TEST_CASE("no stage holds more than one receive buffer ahead of its use") {
  for (const PipelineKind kind : {PipelineKind::kSimple, PipelineKind::kInterleaved}) {
    const Schedule schedule = schedule_of({.stages = 4, .microbatches = 7, .kind = kind});
    for (int64_t stage = 0; stage < 4; ++stage) {
      int64_t posted = 0, most = 0;
      for (const Action& action : schedule.actions[static_cast<size_t>(stage)]) {
        if (action.kind == ActionKind::kReceive) most = std::max(most, ++posted);
        if (action.kind == ActionKind::kReceiveWait) --posted;
      }
      CHECK(most == 1);
    }
  }
}

TEST_CASE("the gradients of replicated KV heads are summed before their bucket") {
  const Schedule schedule = schedule_of({.buckets = true, .kv_replicated = true});
  CHECK(listing(schedule, 0) == std::vector<std::string>{
                                    "forward microbatch 0 layer 0",
                                    "forward microbatch 0 layer 1",
                                    "forward microbatch 0 layer 2",
                                    "backward microbatch 0 layer 2",
                                    "reduce bucket 0",
                                    "backward microbatch 0 layer 1",
                                    "reduce_kv layer 1",
                                    "reduce bucket 1",
                                    "backward microbatch 0 layer 0",
                                    "reduce bucket 2",
                                    "reduce_wait bucket 0",
                                    "gradient_norm bucket 0",
                                    "reduce_wait bucket 1",
                                    "gradient_norm bucket 1",
                                    "reduce_wait bucket 2",
                                    "gradient_norm bucket 2",
                                    "step",
                                    "update bucket 2",
                                    "update bucket 1",
                                    "update bucket 0",
                                });
}

TEST_CASE("a plan's schedule has its layers, buckets and flags") {
  Plan plan =
      sample_plan(small_llama(), {.pipeline = 3, .tensor = 4, .shard = 2, .bucket_bytes = 1});
  ScheduleParameters parameters = schedule_parameters(plan);
  CHECK(parameters.shape.kind == PipelineKind::kInterleaved);
  CHECK(parameters.shape.microbatches == 4);
  CHECK(parameters.layers ==
        std::vector<std::vector<std::vector<int64_t>>>{{{0, 1, 2}}, {{3, 4}}, {{5, 6}}});
  CHECK(parameters.bucket_first_layers ==
        std::vector<std::vector<int64_t>>{{2, 1, 0}, {4, 3}, {6, 5}});
  CHECK(parameters.sharded);
  CHECK(parameters.kv_replicated);
  CHECK_FALSE(parameters.tied_across_stages);
  CHECK_FALSE(verify(make_schedule(parameters), parameters).has_value());

  plan = sample_plan(small_gpt2(), {.pipeline = 2});
  parameters = schedule_parameters(plan);
  CHECK(parameters.tied_across_stages);
  CHECK(parameters.bucket_first_layers == std::vector<std::vector<int64_t>>{{}, {}});
  CHECK_FALSE(parameters.sharded);
}
