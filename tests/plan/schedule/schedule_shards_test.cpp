#include <doctest/doctest.h>

#include <algorithm>

#include "plan/schedule/damaged_schedules.h"

using namespace smp;
using namespace smp::schedule;

namespace {

// One stage of embedding, two blocks and head: layers 0 to 3, buckets 3 to 0.
const SampleSchedule kZero2{.stages = 1,
                            .microbatches = 2,
                            .blocks_per_stage = 2,
                            .buckets = true,
                            .sharded = true,
                            .sharded_gradients = true};
const SampleSchedule kZero3{.stages = 1,
                            .microbatches = 1,
                            .blocks_per_stage = 2,
                            .buckets = true,
                            .sharded_gradients = true,
                            .weight_buffers = 2};

// Embedding and head, and a bucket of what both have that persists.
const SampleSchedule kPersistent{.stages = 1,
                                 .microbatches = 2,
                                 .blocks_per_stage = 0,
                                 .buckets = true,
                                 .sharded_gradients = true,
                                 .weight_buffers = 2,
                                 .persistent = true};

std::vector<std::string> only(const SampleSchedule& sample, const std::vector<ActionKind>& kinds) {
  const ScheduleParameters parameters = sample_parameters(sample);
  const Schedule schedule = make_schedule(parameters);
  CHECK(verify(schedule, parameters).value_or("all is well") == "all is well");
  std::vector<std::string> lines;
  for (const Action& action : schedule.actions[0]) {
    if (std::find(kinds.begin(), kinds.end(), action.kind) == kinds.end()) continue;
    lines.push_back(to_string(action));
  }
  return lines;
}

}  // namespace

TEST_CASE("sharded gradients: each microbatch is reduced, in two buffers in turn") {
  CHECK(only(kZero2, {ActionKind::kBackward, ActionKind::kReduce, ActionKind::kReduceWait,
                      ActionKind::kStep}) ==
        std::vector<std::string>{"backward microbatch 0 layer 3",
                                 "reduce microbatch 0 bucket 0",
                                 "backward microbatch 0 layer 2",
                                 "reduce microbatch 0 bucket 1",
                                 "reduce_wait microbatch 0 bucket 0",
                                 "backward microbatch 0 layer 1",
                                 "reduce microbatch 0 bucket 2",
                                 "reduce_wait microbatch 0 bucket 1",
                                 "backward microbatch 0 layer 0",
                                 "reduce microbatch 0 bucket 3",
                                 "reduce_wait microbatch 0 bucket 2",
                                 "backward microbatch 1 layer 3",
                                 "reduce microbatch 1 bucket 0",
                                 "reduce_wait microbatch 0 bucket 3",
                                 "backward microbatch 1 layer 2",
                                 "reduce microbatch 1 bucket 1",
                                 "reduce_wait microbatch 1 bucket 0",
                                 "backward microbatch 1 layer 1",
                                 "reduce microbatch 1 bucket 2",
                                 "reduce_wait microbatch 1 bucket 1",
                                 "backward microbatch 1 layer 0",
                                 "reduce microbatch 1 bucket 3",
                                 "reduce_wait microbatch 1 bucket 2",
                                 "reduce_wait microbatch 1 bucket 3",
                                 "step"});
}

TEST_CASE("sharded weights: gathered one layer ahead, in the order of use, and freed") {
  CHECK(
      only(kZero3, {ActionKind::kForward, ActionKind::kBackward, ActionKind::kGather,
                    ActionKind::kGatherWait, ActionKind::kFree, ActionKind::kStep}) ==
      std::vector<std::string>{"gather bucket 3",
                               "gather bucket 2",
                               "gather_wait bucket 3",
                               "forward microbatch 0 layer 0",  //
                               "free bucket 3",
                               "gather bucket 1",
                               "gather_wait bucket 2",
                               "forward microbatch 0 layer 1",  //
                               "free bucket 2",
                               "gather bucket 0",
                               "gather_wait bucket 1",
                               "forward microbatch 0 layer 2",  //
                               "gather_wait bucket 0",
                               "forward microbatch 0 layer 3",
                               "backward microbatch 0 layer 3",  // the block before is still there
                               "free bucket 0",
                               "gather bucket 2",
                               "backward microbatch 0 layer 2",
                               "gather_wait bucket 2",
                               "backward microbatch 0 layer 1",
                               "backward microbatch 0 layer 0",  // adds rows and reads none
                               "free bucket 2",
                               "free bucket 1",
                               "step"});
}

TEST_CASE("sharded weights without prefetching: each is gathered when it is used") {
  SampleSchedule sample = kZero3;
  sample.weight_buffers = 1;
  CHECK(only(sample, {ActionKind::kForward, ActionKind::kGather, ActionKind::kGatherWait}) ==
        std::vector<std::string>{
            "gather bucket 3", "gather_wait bucket 3", "forward microbatch 0 layer 0",
            "gather bucket 2", "gather_wait bucket 2", "forward microbatch 0 layer 1",
            "gather bucket 1", "gather_wait bucket 1", "forward microbatch 0 layer 2",
            "gather bucket 0", "gather_wait bucket 0", "forward microbatch 0 layer 3",
            "gather bucket 1", "gather_wait bucket 1", "gather bucket 2", "gather_wait bucket 2"});
}

TEST_CASE(
    "what persists is gathered once, reduced once after all microbatches, and freed at the end") {
  CHECK(only(kPersistent, {ActionKind::kForward, ActionKind::kBackward, ActionKind::kGather,
                           ActionKind::kReduce, ActionKind::kFree, ActionKind::kStep}) ==
        std::vector<std::string>{"gather bucket 2",  // of all layers
                                 "gather bucket 1",
                                 "gather bucket 0",
                                 "forward microbatch 0 layer 0",
                                 "forward microbatch 0 layer 1",
                                 "backward microbatch 0 layer 1",
                                 "reduce microbatch 0 bucket 0",
                                 "backward microbatch 0 layer 0",
                                 "reduce microbatch 0 bucket 1",
                                 "forward microbatch 1 layer 0",
                                 "forward microbatch 1 layer 1",
                                 "backward microbatch 1 layer 1",
                                 "reduce microbatch 1 bucket 0",
                                 "backward microbatch 1 layer 0",
                                 "reduce microbatch 1 bucket 1",
                                 "reduce microbatch 1 bucket 2",
                                 "free bucket 0",
                                 "free bucket 1",
                                 "free bucket 2",
                                 "step"});
  CHECK(verdict(kPersistent, [](Actions& s) { remove(s, "gather_wait bucket 2"); }) ==
        "stage 0, action 4 (forward microbatch 0 layer 0): the weights of bucket 2 are not "
        "gathered");
  CHECK(verdict(kPersistent,
                [](Actions& s) { s[find(s, "reduce microbatch 1 bucket 2")].microbatch = 0; })
            .ends_with("(reduce microbatch 0 bucket 2): the bucket is reduced once, at the end of "
                       "the step"));
  CHECK(
      verdict(kPersistent, [](Actions& s) {
        std::swap(s[find(s, "reduce microbatch 1 bucket 2")],
                  s[find(s, "backward microbatch 1 layer 0")]);
      }).ends_with("(reduce microbatch 1 bucket 2): a microbatch has not passed layer 0 backward"));
}

TEST_CASE("verify: what is sharded is used while it is whole") {
  CHECK(verdict(kZero3, [](Actions& s) { remove(s, "gather_wait bucket 2"); }) ==
        "stage 0, action 6 (forward microbatch 0 layer 1): the weights of bucket 2 are not "
        "gathered");
  CHECK(verdict(kZero3, [](Actions& s) { remove(s, "free bucket 3"); }) ==
        "stage 0, action 4 (gather bucket 1): the buffer of the bucket holds bucket 3");
  CHECK(verdict(kZero3, [](Actions& s) { remove(s, "gather bucket 3"); }) ==
        "stage 0, action 1 (gather_wait bucket 3): the awaited action was never started");
  CHECK(verdict(kZero3, [](Actions& s) {
          s.insert(s.begin(), {.kind = ActionKind::kFree, .bucket = 1});
        }) == "stage 0, action 0 (free bucket 1): the bucket is not gathered");
  CHECK(verdict(kZero3, [](Actions& s) {
          remove(s, "free bucket 1");
        }).ends_with("(step): the weights of bucket 1 are not freed"));
  CHECK(verdict(kZero2, [](Actions& s) {
          s.insert(s.begin(), {.kind = ActionKind::kFree, .bucket = 1});
        }) == "stage 0, action 0 (free bucket 1): the weights are not sharded");
}

TEST_CASE("verify: a gradients' buffer is filled when its reduction has ended") {
  CHECK(verdict(kZero2, [](Actions& s) { remove(s, "reduce_wait microbatch 0 bucket 0"); })
            .ends_with("(backward microbatch 0 layer 1): the buffer of the layer's gradients is "
                       "still used by the reduction of bucket 0"));
  CHECK(verdict(kZero2, [](Actions& s) {
          remove(s, "reduce microbatch 0 bucket 1");
        }).ends_with("(reduce_wait microbatch 0 bucket 1): the awaited action was never started"));
  CHECK(verdict(kZero2, [](Actions& s) {
          remove(s, "reduce microbatch 0 bucket 3");
          remove(s, "reduce_wait microbatch 0 bucket 3");
        }).ends_with("(reduce microbatch 1 bucket 3): microbatch 0 is reduced next"));
  CHECK(verdict(kZero2, [](Actions& s) {
          remove(s, "reduce microbatch 1 bucket 3");
          remove(s, "reduce_wait microbatch 1 bucket 3");
        }).ends_with("(gradient_norm bucket 3): bucket 3 is not reduced yet"));
  CHECK(verdict(kZero2, [](Actions& s) {
          std::swap(s[find(s, "reduce microbatch 0 bucket 0")],
                    s[find(s, "backward microbatch 0 layer 3")]);
        }).ends_with("the microbatch has not passed layer 3 backward"));
}

TEST_CASE("every schedule with sharded gradients and weights is proved") {
  for (const PipelineKind kind :
       {PipelineKind::kSimple, PipelineKind::kInterleaved, PipelineKind::kVirtual,
        PipelineKind::kZbH1, PipelineKind::kZbV}) {
    for (const int64_t stages : {1, 2, 4}) {
      for (const int64_t microbatches : {4, 8}) {
        for (const bool tied : {false, true}) {
          SampleSchedule sample{.stages = stages,
                                .microbatches = microbatches,
                                .kind = kind,
                                .blocks_per_stage = 3,
                                .buckets = true,
                                .tied = tied && stages > 1 && kind != PipelineKind::kZbV,
                                .kv_replicated = tied,
                                .virtual_stages = kind == PipelineKind::kVirtual ? 2 : 1,
                                .sharded_gradients = true,
                                .weight_buffers = 2};
          sample.early_updates = microbatches == 8;
          sample.persistent = microbatches == 4;
          if (schedule_refused(sample_parameters(sample).shape)) continue;
          const ScheduleParameters parameters = sample_parameters(sample);
          CHECK(verify(make_schedule(parameters), parameters).value_or("all is well") ==
                "all is well");
        }
      }
    }
  }
}
