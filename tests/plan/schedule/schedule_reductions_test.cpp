#include <doctest/doctest.h>

#include <algorithm>

#include "plan/schedule/damaged_schedules.h"
#include "smp/plan/spec/bucket_size.h"

using namespace smp;
using namespace smp::schedule;

namespace {

// Embedding, two blocks and head: layers 0 to 3, buckets 3 to 0.
SampleSchedule four_layers() { return {.blocks_per_stage = 2, .buckets = true, .sharded = true}; }
SampleSchedule two_at_once() {
  SampleSchedule sample = four_layers();
  sample.most_reductions = 2;
  return sample;
}
SampleSchedule hybrid() {
  SampleSchedule sample = four_layers();
  sample.replicas = true;
  return sample;
}

// The actions from the first backward to the step.
std::vector<std::string> after_forward(const SampleSchedule& sample) {
  const ScheduleParameters parameters = sample_parameters(sample);
  const Schedule schedule = make_schedule(parameters);
  CHECK(verify(schedule, parameters).value_or("all is well") == "all is well");
  std::vector<std::string> lines = listing(schedule, 0);
  lines.erase(lines.begin(), std::find_if(lines.begin(), lines.end(), [](const std::string& line) {
                return line.starts_with("backward");
              }));
  lines.erase(std::find(lines.begin(), lines.end(), "step") + 1, lines.end());
  return lines;
}

// The most buckets in flight at once: between the start of a half and its wait.
int64_t most_in_flight(const Actions& actions) {
  int64_t now = 0, most = 0;
  for (const Action& action : actions) {
    const bool starts =
        action.kind == ActionKind::kReduce || action.kind == ActionKind::kReduceReplicas;
    const bool ends =
        action.kind == ActionKind::kReduceWait || action.kind == ActionKind::kReduceReplicasWait;
    most = std::max(most, now += (starts ? 1 : 0) - (ends ? 1 : 0));
  }
  CHECK(now == 0);
  return most;
}

}  // namespace

TEST_CASE("a reduction beyond the cap waits for the oldest, and norms for the end") {
  CHECK(after_forward(two_at_once()) ==
        std::vector<std::string>{"backward microbatch 0 layer 3", "reduce bucket 0",  //
                                 "backward microbatch 0 layer 2", "reduce bucket 1",  //
                                 "backward microbatch 0 layer 1",                     //
                                 "reduce_wait bucket 0", "reduce bucket 2",           //
                                 "backward microbatch 0 layer 0",                     //
                                 "reduce_wait bucket 1", "reduce bucket 3",           //
                                 "gradient_norm bucket 0",
                                 "gradient_norm bucket 1",  // beside the last two
                                 "reduce_wait bucket 2", "gradient_norm bucket 2",  //
                                 "reduce_wait bucket 3", "gradient_norm bucket 3",  //
                                 "step"});
}

TEST_CASE("replicas: a second half starts when its first half is expected to be done") {
  CHECK(after_forward(hybrid()) == std::vector<std::string>{"backward microbatch 0 layer 3",
                                                            "reduce bucket 0",  //
                                                            "backward microbatch 0 layer 2",
                                                            "reduce_wait bucket 0",  //
                                                            "reduce_replicas bucket 0",
                                                            "reduce bucket 1",  //
                                                            "backward microbatch 0 layer 1",
                                                            "reduce_wait bucket 1",  //
                                                            "reduce_replicas bucket 1",
                                                            "reduce bucket 2",  //
                                                            "backward microbatch 0 layer 0",
                                                            "reduce_wait bucket 2",  //
                                                            "reduce_replicas bucket 2",
                                                            "reduce bucket 3",  //
                                                            "reduce_wait bucket 3",
                                                            "reduce_replicas bucket 3",  //
                                                            "reduce_replicas_wait bucket 0",
                                                            "gradient_norm bucket 0",  //
                                                            "reduce_replicas_wait bucket 1",
                                                            "gradient_norm bucket 1",  //
                                                            "reduce_replicas_wait bucket 2",
                                                            "gradient_norm bucket 2",  //
                                                            "reduce_replicas_wait bucket 3",
                                                            "gradient_norm bucket 3",  //
                                                            "step"});
  // Early updates hide the last second half behind the first update.
  SampleSchedule early = hybrid();
  early.early_updates = true;
  std::vector<std::string> lines = after_forward(early);
  lines.erase(lines.begin(), std::find(lines.begin(), lines.end(), "reduce bucket 3") + 1);
  CHECK(lines == std::vector<std::string>{"reduce_replicas_wait bucket 0", "update bucket 0",  //
                                          "reduce_wait bucket 3", "reduce_replicas bucket 3",  //
                                          "reduce_replicas_wait bucket 1", "update bucket 1",  //
                                          "reduce_replicas_wait bucket 2", "update bucket 2",  //
                                          "reduce_replicas_wait bucket 3", "update bucket 3",  //
                                          "gather bucket 3", "gather bucket 2", "gather bucket 1",
                                          "gather bucket 0", "step"});
}

TEST_CASE("replicas: a large bucket's first half has as much computing beside it") {
  ScheduleParameters parameters = sample_parameters(hybrid());
  const auto lag_of = [&](int64_t elements) {
    parameters.bucket_elements[0][0] = elements;
    const Schedule schedule = make_schedule(parameters);
    CHECK(verify(schedule, parameters).value_or("all is well") == "all is well");
    const Actions& actions = schedule.actions[0];
    return std::count_if(
        actions.begin() + static_cast<std::ptrdiff_t>(find(actions, "reduce bucket 0")),
        actions.begin() + static_cast<std::ptrdiff_t>(find(actions, "reduce_wait bucket 0")),
        [](const Action& action) { return action.kind == ActionKind::kBackward; });
  };
  CHECK(lag_of(1) == 1);
  CHECK(lag_of(2) == 2);
  CHECK(lag_of(3) == 3);
  CHECK(lag_of(1000) == 3);  // the end of the step
  parameters.reduced_per_computed = 4;
  CHECK(lag_of(1) == 1);
  CHECK(lag_of(4) == 1);
  CHECK(lag_of(5) == 2);
}

TEST_CASE("verify: reductions stay below the cap, and all are waited for") {
  CHECK(verdict(two_at_once(), [](Actions& s) {
          move_before(s, "reduce_wait bucket 0", "gradient_norm bucket 0");
        }).ends_with("(reduce bucket 2): 2 reductions are in flight, the most"));
  CHECK(verdict(two_at_once(), [](Actions& s) {
          remove(s, "reduce_wait bucket 3");
        }).ends_with("(gradient_norm bucket 3): bucket 3 is not reduced yet"));
  SampleSchedule tight = hybrid();
  tight.most_reductions = 2;
  CHECK(verdict(tight, [](Actions& s) {
          move_before(s, "reduce_replicas_wait bucket 0", "gradient_norm bucket 0");
        }).ends_with("(reduce bucket 2): 2 reductions are in flight, the most"));
  SampleSchedule early = two_at_once();
  early.early_updates = true;
  CHECK(verdict(early, [](Actions& s) {
          remove(s, "reduce_wait bucket 3");
        }).ends_with("(update bucket 3): bucket 3 is not reduced yet"));
}

TEST_CASE("verify: second halves follow their first halves, once, before the norm or the update") {
  CHECK(verdict(hybrid(), [](Actions& s) {
          move_before(s, "reduce_replicas bucket 1", "reduce_wait bucket 1");
        }).ends_with("(reduce_replicas bucket 1): bucket 1 is not reduced yet"));
  CHECK(verdict(hybrid(), [](Actions& s) {
          remove(s, "reduce_replicas bucket 1");
        }).ends_with("(reduce_replicas_wait bucket 1): the awaited action was never started"));
  CHECK(verdict(hybrid(), [](Actions& s) {
          repeat(s, "reduce_replicas bucket 1");
        }).ends_with("(reduce_replicas bucket 1): the action was already started"));
  CHECK(verdict(hybrid(), [](Actions& s) {
          repeat(s, "reduce_replicas_wait bucket 1");
        }).ends_with("(reduce_replicas_wait bucket 1): the action was already awaited"));
  CHECK(verdict(hybrid(), [](Actions& s) {
          remove(s, "reduce_replicas_wait bucket 2");
        }).ends_with("(gradient_norm bucket 2): bucket 2 is not reduced over the replicas yet"));
  CHECK(verdict(hybrid(), [](Actions& s) {
          s[find(s, "reduce_replicas bucket 2")].bucket = 7;
        }).ends_with("(reduce_replicas bucket 7): the bucket is not of this stage"));
  CHECK(verdict(four_layers(), [](Actions& s) {
          s.insert(s.begin() + static_cast<std::ptrdiff_t>(find(s, "step")),
                   {.kind = ActionKind::kReduceReplicas, .bucket = 0});
        }).ends_with("(reduce_replicas bucket 0): the shards have no replicas"));
  SampleSchedule early = hybrid();
  early.early_updates = true;
  CHECK(verdict(early, [](Actions& s) {
          move_before(s, "update bucket 1", "reduce_replicas_wait bucket 1");
        }).ends_with("(update bucket 1): bucket 1 is not reduced over the replicas yet"));
  SampleSchedule by_microbatch = hybrid();
  by_microbatch.microbatches = 2;
  by_microbatch.sharded_gradients = true;
  CHECK(verdict(by_microbatch, [](Actions& s) {
          move_before(s, "reduce_replicas bucket 0", "backward microbatch 1 layer 3");
        }).ends_with("(reduce_replicas bucket 0): bucket 0 is not reduced yet"));
}

TEST_CASE("verify: the norm has the squares of each bucket once") {
  CHECK(verdict(four_layers(), [](Actions& s) {
          remove(s, "gradient_norm bucket 2");
        }).ends_with("(step): the norm lacks bucket 2"));
  CHECK(verdict(four_layers(), [](Actions& s) {
          repeat(s, "gradient_norm bucket 2");
        }).ends_with("(gradient_norm bucket 2): the action was already done"));
  CHECK(verdict(four_layers(), [](Actions& s) {
          s.push_back(s[find(s, "gradient_norm bucket 2")]);
        }).ends_with("(gradient_norm bucket 2): the action comes after the step"));
  CHECK(verdict(four_layers(), [](Actions& s) {
          s[find(s, "gradient_norm bucket 2")].bucket = 9;
        }).ends_with("(gradient_norm bucket 9): the bucket is not of this stage"));
  SampleSchedule early = four_layers();
  early.early_updates = true;
  CHECK(verdict(early, [](Actions& s) {
          s.insert(s.begin() + static_cast<std::ptrdiff_t>(find(s, "update bucket 0")),
                   {.kind = ActionKind::kGradientNorm, .bucket = 0});
        }).ends_with("(gradient_norm bucket 0): an early update sums the squares itself"));
}

TEST_CASE("updated weights: at most two gathers are in flight, and the next step starts the rest") {
  SampleSchedule sample = four_layers();
  sample.most_gathers = 2;
  const ScheduleParameters parameters = sample_parameters(sample);
  const Schedule schedule = make_schedule(parameters);
  CHECK(verify(schedule, parameters).value_or("all is well") == "all is well");
  std::vector<std::string> lines;
  for (const Action& action : schedule.actions[0]) {
    const bool shown = action.kind == ActionKind::kGather ||
                       action.kind == ActionKind::kGatherWait ||
                       action.kind == ActionKind::kForward || action.kind == ActionKind::kUpdate;
    if (shown) lines.push_back(to_string(action));
  }
  CHECK(lines ==
        std::vector<std::string>{"gather_wait bucket 3", "gather bucket 1",               //
                                 "forward microbatch 0 layer 0",                          //
                                 "gather_wait bucket 2", "gather bucket 0",               //
                                 "forward microbatch 0 layer 1",                          //
                                 "gather_wait bucket 1", "forward microbatch 0 layer 2",  //
                                 "gather_wait bucket 0", "forward microbatch 0 layer 3",  //
                                 "update bucket 3", "gather bucket 3",                    //
                                 "update bucket 2", "gather bucket 2",                    //
                                 "update bucket 1", "update bucket 0"});
  CHECK(verdict(sample, [](Actions& s) {
          s.push_back({.kind = ActionKind::kGather, .bucket = 1});
        }).ends_with("(gather bucket 1): 2 gathers are in flight, the most"));
  CHECK(verdict(sample, [](Actions& s) {
          move_before(s, "gather bucket 1", "gather_wait bucket 3");
        }).ends_with("(gather bucket 1): 2 gathers are in flight, the most"));
  CHECK(verdict(sample, [](Actions& s) {
          remove(s, "gather bucket 1");
        }).ends_with("(gather_wait bucket 1): the awaited action was never started"));
  CHECK(verdict(sample, [](Actions& s) {
          repeat(s, "gather bucket 1");
        }).ends_with("(gather bucket 1): the action was already started"));
  CHECK(verdict(sample, [](Actions& s) {
          s.erase(s.end() - 3);  // gather bucket 2
        }) == "stage 0, at its end: the weights of bucket 2 are not gathered");
  CHECK(verdict(sample,
                [](Actions& s) {
                  s.push_back({.kind = ActionKind::kGatherWait, .bucket = 3});
                  s.push_back({.kind = ActionKind::kGather, .bucket = 1});
                }) ==
        "stage 0, at its end: the weights of bucket 1 are gathered here, not where the next step "
        "does it");
}

TEST_CASE("every schedule gathers updated weights, with any number in flight") {
  for (const PipelineKind kind :
       {PipelineKind::kSimple, PipelineKind::kInterleaved, PipelineKind::kVirtual,
        PipelineKind::kZbH1, PipelineKind::kZbV}) {
    for (const int64_t stages : {1, 2, 4}) {
      for (const bool tied : {false, true}) {
        for (const int64_t most_gathers : {0, 1, 2, 5}) {
          SampleSchedule sample{.stages = stages,
                                .microbatches = 4,
                                .kind = kind,
                                .blocks_per_stage = 4,
                                .buckets = true,
                                .sharded = true,
                                .early_updates = most_gathers == 2,
                                .tied = tied && stages > 1 && kind != PipelineKind::kZbV,
                                .virtual_stages = kind == PipelineKind::kVirtual ? 2 : 1};
          sample.most_gathers = most_gathers;
          const ScheduleParameters parameters = sample_parameters(sample);
          if (schedule_refused(parameters.shape)) continue;
          const Schedule schedule = make_schedule(parameters);
          CHECK(verify(schedule, parameters).value_or("all is well") == "all is well");
          for (size_t stage = 0; stage < schedule.actions.size(); ++stage) {
            const auto gathers = std::count_if(
                schedule.actions[stage].begin(), schedule.actions[stage].end(),
                [](const Action& action) { return action.kind == ActionKind::kGather; });
            CHECK(gathers == static_cast<int64_t>(parameters.bucket_elements[stage].size()));
          }
        }
      }
    }
  }
}

TEST_CASE("every schedule reduces over replicas, with at most four buckets in flight") {
  int64_t most = 0;
  for (const PipelineKind kind :
       {PipelineKind::kSimple, PipelineKind::kInterleaved, PipelineKind::kVirtual,
        PipelineKind::kZbH1, PipelineKind::kZbV}) {
    for (const int64_t stages : {1, 2, 4}) {
      for (const int64_t microbatches : {1, 4, 8}) {
        for (const int64_t sharded : {0, 1, 2, 3}) {  // ZeRO
          SampleSchedule sample{.stages = stages,
                                .microbatches = microbatches,
                                .kind = kind,
                                .blocks_per_stage = 6,
                                .buckets = true,
                                .sharded = sharded == 1 || sharded == 2,
                                .virtual_stages = kind == PipelineKind::kVirtual ? 2 : 1,
                                .sharded_gradients = sharded >= 2,
                                .weight_buffers = sharded == 3 ? 2 : 0};
          sample.replicas = sharded > 0;
          sample.early_updates = microbatches == 8;
          sample.persistent = sharded == 3 && microbatches == 4;
          ScheduleParameters parameters = sample_parameters(sample);
          // Zero-bubble schedules give each bucket a buffer of its own.
          for (auto& buffers : parameters.gradient_buffers) {
            if (!defers_weight_gradients(kind)) break;
            for (size_t b = 0; b < buffers.size(); ++b) buffers[b] = static_cast<int32_t>(b);
          }
          if (schedule_refused(parameters.shape)) continue;
          const Schedule schedule = make_schedule(parameters);
          CHECK(verify(schedule, parameters).value_or("all is well") == "all is well");
          for (const Actions& actions : schedule.actions) {
            most = std::max(most, most_in_flight(actions));
          }
        }
      }
    }
  }
  CHECK(most == kMostReductions);
}
