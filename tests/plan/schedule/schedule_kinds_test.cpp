#include <doctest/doctest.h>

#include <algorithm>
#include <ctime>

#include "layout/group_check.h"
#include "plan/plan_samples.h"
#include "plan/schedule_samples.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/layout/layout.h"
#include "smp/plan/layout/schedule_of_plan.h"
#include "smp/plan/schedule/pass_order.h"

using namespace smp;
using namespace smp::layout;
using namespace smp::mesh;
using namespace smp::schedule;

namespace {

constexpr PipelineKind kKinds[] = {PipelineKind::kSimple, PipelineKind::kInterleaved,
                                   PipelineKind::kVirtual, PipelineKind::kZbH1, PipelineKind::kZbV};

// "F0 F1 B0 W0 f0 ...": passes of a stage; small letters are chunk 1.
std::string order(const ScheduleShape& shape, int64_t stage) {
  std::string text;
  for (const Pass& pass : pass_order(shape, stage)) {
    const char* letters = pass.chunk == 0 ? "FBW" : "fbw";
    if (!text.empty()) text += ' ';
    text += letters[static_cast<int>(pass.kind)];
    text += std::to_string(pass.microbatch);
  }
  return text;
}

std::string refused(const ScheduleShape& shape) {
  return schedule_refused(shape).value_or("all is well");
}

// A sample whose schedule exists: with buckets and all, where the kind allows it.
SampleSchedule sample_of(PipelineKind kind, int64_t stages, int64_t microbatches) {
  return {.stages = stages,
          .microbatches = microbatches,
          .kind = kind,
          .buckets = true,
          .sharded = true,
          .tied = stages > 1 && kind != PipelineKind::kZbV,
          .kv_replicated = true,
          .virtual_stages = kind == PipelineKind::kVirtual ? 2 : 1};
}

}  // namespace

TEST_CASE("virtual: groups of p microbatches pass all chunks, 2(p - i - 1) + (v - 1)p ahead") {
  const ScheduleShape shape{PipelineKind::kVirtual, 2, 2, 4};
  CHECK(order(shape, 0) == "F0 F1 f0 f1 F2 b0 F3 b1 f2 B0 f3 B1 b2 b3 B2 B3");
  CHECK(order(shape, 1) == "F0 F1 f0 b0 f1 b1 F2 B0 F3 B1 f2 b2 f3 b3 B2 B3");
}

TEST_CASE("zb_h1: weight gradients wait for as long as memory allows") {
  const ScheduleShape shape{PipelineKind::kZbH1, 3, 1, 5};
  CHECK(order(shape, 0) == "F0 F1 F2 B0 W0 F3 B1 W1 F4 B2 W2 B3 W3 B4 W4");
  CHECK(order(shape, 1) == "F0 F1 B0 F2 B1 W0 F3 B2 W1 F4 B3 W2 B4 W3 W4");
  CHECK(order(shape, 2) == "F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 F4 B4 W2 W3 W4");
}

TEST_CASE("zb_v: down the stages in one chunk and up in the other") {
  const ScheduleShape shape{PipelineKind::kZbV, 2, 1, 3};
  CHECK(order(shape, 0) == "F0 F1 F2 f0 b0 w0 f1 b1 w1 B0 W0 f2 b2 w2 B1 W1 B2 W2");
  CHECK(order(shape, 1) == "F0 f0 F1 f1 b0 w0 F2 B0 W0 f2 b1 w1 B1 b2 B2 W1 w2 W2");
  CHECK(place_of_chunk(shape, 0) == ChunkPlace{0, 0});
  CHECK(place_of_chunk(shape, 2) == ChunkPlace{1, 1});
  CHECK(place_of_chunk(shape, 3) == ChunkPlace{0, 1});
}

TEST_CASE("what no schedule can do is refused with the numbers") {
  CHECK(refused({PipelineKind::kVirtual, 4, 2, 6}) ==
        "virtual stages take microbatches in groups of p: microbatches % p = 6 % 4 = 2, which must "
        "be 0");
  CHECK(refused({PipelineKind::kVirtual, 4, 1, 8}) ==
        "virtual stages are chunks of layers, 2 or more a stage, not 1: with one the schedule is "
        "interleaved");
  CHECK(refused({PipelineKind::kVirtual, 4, 2, 8, 2}) ==
        "virtual stages hold a group of p microbatches in v - 1 chunks and one more: "
        "active_microbatches must be at least ((v - 1) p + 1) / v = ((2 - 1) x 4 + 1) / 2, 3 "
        "rounded up, not 2");
  CHECK(refused({PipelineKind::kVirtual, 4, 2, 8, 3}) == "all is well");
  CHECK(refused({PipelineKind::kZbV, 4, 1, 8, 3}) ==
        "zb_v holds min(p, microbatches) microbatches on each stage: active_microbatches must be "
        "at least min(4, 8) = 4, not 3");
  CHECK(refused({PipelineKind::kZbV, 4, 1, 3, 3}) == "all is well");
  CHECK(refused({PipelineKind::kZbH1, 4, 1, 8, 1}) == "all is well");
  CHECK_THROWS_WITH_AS(
      make_schedule(sample_parameters(
          {.stages = 2, .microbatches = 3, .kind = PipelineKind::kVirtual, .virtual_stages = 2})),
      "schedule: virtual stages take microbatches in groups of p: microbatches % p = 3 % 2 = 1, "
      "which must be 0",
      ConfigError);
}

TEST_CASE("the smallest cap that an error names does work") {
  for (const int64_t stages : {2, 3, 4, 7}) {
    for (const int64_t chunks : {2, 3, 5}) {
      for (const PipelineKind kind : {PipelineKind::kVirtual, PipelineKind::kZbV}) {
        const ScheduleShape shape{kind, stages, chunks, 2 * stages};
        const auto works = [&](int64_t cap) {
          ScheduleShape capped = shape;
          capped.active_microbatches = cap;
          return !schedule_refused(capped).has_value();
        };
        int64_t least = 1;
        while (!works(least)) ++least;
        ScheduleShape capped = shape;
        capped.active_microbatches = std::max<int64_t>(1, least - 1);
        if (least > 1) {
          CHECK(refused(capped).find(std::to_string(least)) != std::string::npos);
        }
        const ScheduleParameters parameters = sample_parameters({.stages = stages,
                                                                 .microbatches = 2 * stages,
                                                                 .kind = kind,
                                                                 .active_microbatches = least,
                                                                 .virtual_stages = chunks});
        CHECK_FALSE(verify(make_schedule(parameters), parameters).has_value());
      }
    }
  }
}

TEST_CASE("every schedule of every kind is proved, and holds exactly what it promises") {
  int64_t proved = 0;
  for (const PipelineKind kind : kKinds)
    for (int64_t stages = 1; stages <= 8; ++stages)
      for (int64_t microbatches = 1; microbatches <= 18; ++microbatches)
        for (const int64_t cap : {0, 1, 2, 3, 5})
          for (const int64_t chunks : {2, 3, 4}) {
            if (kind != PipelineKind::kVirtual && chunks > 2) continue;
            SampleSchedule sample = sample_of(kind, stages, microbatches);
            sample.active_microbatches = cap;
            sample.virtual_stages = chunks;
            const ScheduleParameters parameters = sample_parameters(sample);
            if (schedule_refused(parameters.shape)) continue;
            const Schedule schedule = make_schedule(parameters);
            if (const auto counter_example = verify(schedule, parameters)) FAIL(*counter_example);
            for (int64_t stage = 0; stage < stages; ++stage) {
              REQUIRE(max_live(schedule, stage) == schedule.live_bound[static_cast<size_t>(stage)]);
              if (cap > 0) REQUIRE(max_live(schedule, stage) <= cap * parameters.shape.chunks());
            }
            ++proved;
          }
  CHECK(proved > 2500);
}

TEST_CASE("verify finds every action that is missing, doubled or changed, in every kind") {
  for (const PipelineKind kind : kKinds) {
    const ScheduleParameters parameters = sample_parameters(sample_of(kind, 3, 3));
    const Schedule whole = make_schedule(parameters);
    REQUIRE_FALSE(verify(whole, parameters).has_value());
    for (size_t stage = 0; stage < whole.actions.size(); ++stage) {
      for (size_t i = 0; i < whole.actions[stage].size(); ++i) {
        const auto at = static_cast<std::ptrdiff_t>(i);
        CAPTURE(to_string(whole.actions[stage][i]));
        CAPTURE(stage);
        Schedule without = whole;
        without.actions[stage].erase(without.actions[stage].begin() + at);
        CHECK(verify(without, parameters).has_value());
        Schedule twice = whole;
        twice.actions[stage].insert(twice.actions[stage].begin() + at, whole.actions[stage][i]);
        CHECK(verify(twice, parameters).has_value());
        Schedule changed = whole;
        Action& action = changed.actions[stage][i];
        if (action.bucket >= 0) {
          ++action.bucket;
        } else if (action.microbatch >= 0) {
          action.microbatch = (action.microbatch + 1) % 3;
        } else if (action.layer >= 0) {
          ++action.layer;
        } else {
          continue;
        }
        CHECK(verify(changed, parameters).has_value());
      }
    }
  }
}

TEST_CASE("verify finds passes and messages in the wrong order, in every kind") {
  for (const PipelineKind kind : kKinds) {
    const ScheduleParameters parameters = sample_parameters(sample_of(kind, 3, 6));
    const Schedule whole = make_schedule(parameters);
    int64_t found = 0;
    for (size_t stage = 0; stage < whole.actions.size(); ++stage) {
      for (size_t i = 0; i + 1 < whole.actions[stage].size(); ++i) {
        Schedule swapped = whole;
        Action& first = swapped.actions[stage][i];
        Action& second = swapped.actions[stage][i + 1];
        std::swap(first, second);
        const bool broken = verify(swapped, parameters).has_value();
        found += broken ? 1 : 0;
        // A pass before what it needs: the layer before, or a message.
        const bool same = first.microbatch >= 0 && first.microbatch == second.microbatch &&
                          first.chunk == second.chunk;
        const auto computes = [](const Action& action) {
          return action.kind == ActionKind::kForward || action.kind == ActionKind::kBackward;
        };
        const bool needed = computes(second) || second.kind == ActionKind::kReceiveWait;
        if (same && needed && computes(first)) CHECK(broken);
      }
    }
    CHECK(found > 60);
  }
}

TEST_CASE("a weight gradient before its backward, or in a schedule without them, is found") {
  const ScheduleParameters parameters = sample_parameters(sample_of(PipelineKind::kZbH1, 2, 2));
  Schedule schedule = make_schedule(parameters);
  schedule.actions[1].insert(schedule.actions[1].begin() + 5,
                             {.kind = ActionKind::kWeight, .microbatch = 0, .layer = 3});
  CHECK(verify(schedule, parameters).value() ==
        "stage 1, action 5 (weight microbatch 0 layer 3): backward of this microbatch has not "
        "passed the layer");
  const ScheduleParameters plain = sample_parameters({});
  schedule = make_schedule(plain);
  schedule.actions[0].insert(schedule.actions[0].begin(),
                             {.kind = ActionKind::kWeight, .microbatch = 0, .layer = 0});
  CHECK(verify(schedule, plain).value() ==
        "stage 0, action 0 (weight microbatch 0 layer 0): this schedule computes weight gradients "
        "in its backward");
}

TEST_CASE("the head's weight gradient follows its backward: logits are not kept") {
  const ScheduleParameters parameters = sample_parameters(sample_of(PipelineKind::kZbH1, 2, 4));
  const Schedule schedule = make_schedule(parameters);
  const std::vector<Action>& actions = schedule.actions[1];
  for (size_t i = 0; i < actions.size(); ++i) {
    if (actions[i].kind != ActionKind::kWeight || actions[i].layer != parameters.head_layer) {
      continue;
    }
    CHECK(actions[i - 1].kind == ActionKind::kBackward);
    CHECK(actions[i - 1].microbatch == actions[i].microbatch);
    CHECK(actions[i - 1].layer == actions[i].layer);
  }
}

TEST_CASE("a plan's chunks: layers go round the stages, or down and up") {
  Plan plan = sample_plan(small_gpt2(), {.pipeline = 2, .microbatches = 4});
  plan.job.model.num_layers = 5;
  plan.job.parallel.pipeline = PipelineKind::kVirtual;
  plan.job.parallel.virtual_pipeline_degree = 2;
  ScheduleParameters parameters = schedule_parameters(plan);
  using Layers = std::vector<std::vector<std::vector<int64_t>>>;
  CHECK(parameters.layers == Layers{{{0, 1, 2}, {4}}, {{3}, {5, 6}}});
  CHECK(parameters.head_layer == 6);
  CHECK(parameters.tied_across_stages);
  CHECK_FALSE(verify(make_schedule(parameters), parameters).has_value());
  CHECK_FALSE(verify_groups(plan).has_value());

  plan.job.parallel.pipeline = PipelineKind::kZbV;
  parameters = schedule_parameters(plan);
  CHECK(parameters.layers == Layers{{{0, 1, 2}, {5, 6}}, {{3}, {4}}});
  CHECK_FALSE(parameters.tied_across_stages);  // both ends of the model are on stage 0
  CHECK_FALSE(rank_layout(plan, 1).tied_copy.has_value());
  CHECK_FALSE(verify(make_schedule(parameters), parameters).has_value());

  plan.job.model.num_layers = 3;
  CHECK_THROWS_WITH_AS(
      schedule_parameters(plan),
      "a stage has 1 layer, fewer than its 2 chunks: every chunk needs at least one layer",
      ConfigError);
}

TEST_CASE("groups that do not cut the world, or leave their stage, are found") {
  const auto problem = [](std::vector<std::vector<int64_t>> groups) {
    return group_problem({.axis = Axis::kShard,
                          .world = 4,
                          .group_of = [&](int64_t rank) { return groups.at(size_t(rank)); },
                          .stage_of = [](int64_t rank) { return rank / 2; }})
        .value_or("all is well");
  };
  CHECK(problem({{0, 1}, {0, 1}, {2, 3}, {2, 3}}) == "all is well");
  CHECK(problem({{0, 1}, {0, 1}, {1, 3}, {2, 3}}) ==
        "shard group of rank 2: rank 1 is in another group too");
  CHECK(problem({{0, 2}, {0, 1}, {0, 2}, {2, 3}}) ==
        "shard group of rank 0: rank 2 is on stage 1, not 0, which executes other actions");
  CHECK(problem({{1}, {1}, {2}, {3}}) == "shard group of rank 0 is without it");
  CHECK(problem({{0, 1}, {1}, {2}, {3}}) == "shard group of rank 0: rank 1 lists other members");
  CHECK(problem({{0, 9}, {1}, {2}, {3}}) == "shard group of rank 0: unknown rank 9");
}

// Of this process's CPU time, which is 0.5 s, under ASan 4: what else the machine does is not in
// it.
TEST_CASE("schedules of 16,384 ranks are proved in seconds") {
  const std::clock_t start = std::clock();
  // p 64 x t 8 x d 32 as a plan with all its groups; then the widest pipelines by themselves.
  Plan plan = sample_plan(small_llama(), {.pipeline = 64, .tensor = 8, .shard = 32});
  plan.job.model.num_layers = 128;
  plan.job.model.num_heads = plan.job.model.num_kv_heads = 8;
  plan.job.model.hidden_size = 8 * plan.job.model.head_dim;
  plan.job.training.microbatches = 256;
  plan.job.parallel.active_microbatches = 256;
  CHECK(plan.degrees.world() == 16384);
  CHECK_FALSE(verify_groups(plan).has_value());
  const ScheduleParameters of_plan = schedule_parameters(plan);
  CHECK_FALSE(verify(make_schedule(of_plan), of_plan).has_value());
  for (const auto& [kind, stages, microbatches, chunks] :
       {std::tuple{PipelineKind::kVirtual, 128, 512, 4},
        std::tuple{PipelineKind::kZbV, 128, 512, 2},
        std::tuple{PipelineKind::kInterleaved, 1024, 256, 1}}) {
    const ScheduleParameters parameters = sample_parameters(
        {.stages = stages, .microbatches = microbatches, .kind = kind, .virtual_stages = chunks});
    CHECK_FALSE(verify(make_schedule(parameters), parameters).has_value());
  }
  CHECK(std::clock() - start < 10 * CLOCKS_PER_SEC);
}
