#include "time/step_player.h"

#include <doctest/doctest.h>

using namespace smp;
using namespace smp::schedule;
using namespace smp::time;

namespace {

Schedule schedule_of(std::vector<std::vector<Action>> actions) {
  Schedule schedule;
  schedule.stages = static_cast<int64_t>(actions.size());
  schedule.actions = std::move(actions);
  return schedule;
}

Action compute(ActionKind kind, int32_t layer, int32_t microbatch = 0) {
  return {.kind = kind, .microbatch = microbatch, .layer = layer};
}
Action of_bucket(ActionKind kind, int32_t bucket) { return {.kind = kind, .bucket = bucket}; }
Action message(ActionKind kind, int32_t peer, int32_t microbatch = 0) {
  return {.kind = kind, .payload = Payload::kActivation, .microbatch = microbatch, .peer = peer};
}

// Stages of three layers and three buckets: a layer takes 1 s forward, 2 s backward.
StepActionSeconds seconds_of(size_t stages, const BucketActionSeconds& bucket) {
  StepActionSeconds seconds;
  seconds.layers.assign(3, {.forward = 1, .backward = 2, .offload = 0.5});
  for (size_t i = 0; i < stages; ++i) {
    seconds.stages.push_back({.buckets = std::vector<BucketActionSeconds>(3, bucket),
                              .messages = {{.activation = 1, .gradient = 1}}});
  }
  return seconds;
}

// Backward of three layers, each reduced when it is done; then the waits, the step and the updates.
std::vector<Action> reductions() {
  std::vector<Action> actions;
  for (const int32_t layer : {2, 1, 0}) {
    actions.push_back(compute(ActionKind::kBackward, layer));
    actions.push_back(of_bucket(ActionKind::kReduce, 2 - layer));
  }
  for (const int32_t bucket : {0, 1, 2}) {
    actions.push_back(of_bucket(ActionKind::kReduceWait, bucket));
  }
  actions.push_back({.kind = ActionKind::kStep});
  for (const int32_t bucket : {2, 1, 0}) {
    actions.push_back(of_bucket(ActionKind::kUpdate, bucket));
  }
  return actions;
}

}  // namespace

TEST_CASE("computing hides all reductions but the last") {
  const StepActionSeconds seconds = seconds_of(1, {.reduce = 1.5, .update = 0.25});
  const PlayedStep step = play_step(schedule_of({reductions()}), seconds, PlayedDetail::kActions);
  const PlayedSums& sums = step.stages.front().sums;
  CHECK(sums.computing == 6);
  CHECK(sums.exposed == 1.5);
  CHECK(sums.updating == 0.75);
  CHECK(step.seconds == 8.25);
  CHECK(step.stages.front().last_gradient_s == 6);
  // The second reduction begins with the end of the second backward.
  CHECK(step.stages.front().calls[3].begin_s == 4);
  CHECK(step.stages.front().calls[3].end_s == 5.5);
}

TEST_CASE("calls of a group run one after the other, and slow the computing beside them") {
  StepActionSeconds seconds = seconds_of(1, {.reduce = 3});
  CHECK(play_step(schedule_of({reductions()}), seconds).seconds == 2 + 3 * 3);
  // Two layers' backward are slower by a quarter; the calls end as before.
  seconds.reduce_slowdown = 0.25;
  const PlayedStep slowed = play_step(schedule_of({reductions()}), seconds);
  CHECK(slowed.stages.front().sums.slowed == 1);
  CHECK(slowed.seconds == 2 + 3 * 3);
}

TEST_CASE("sums over replicas run beside the reductions of shard groups") {
  std::vector<Action> actions;
  for (const int32_t bucket : {0, 1, 2}) {
    actions.push_back(of_bucket(ActionKind::kReduce, bucket));
  }
  for (const int32_t bucket : {0, 1, 2}) {
    actions.push_back(of_bucket(ActionKind::kReduceWait, bucket));
    actions.push_back(of_bucket(ActionKind::kReduceReplicas, bucket));
  }
  for (const int32_t bucket : {0, 1, 2}) {
    actions.push_back(of_bucket(ActionKind::kReduceReplicasWait, bucket));
  }
  const StepActionSeconds seconds = seconds_of(1, {.reduce = 2, .reduce_replicas = 2});
  CHECK(play_step(schedule_of({actions}), seconds).seconds == 3 * 2 + 2);
}

TEST_CASE("gathers of updated weights run on into the next step") {
  std::vector<Action> actions;
  for (const int32_t layer : {0, 1, 2}) {
    actions.push_back(of_bucket(ActionKind::kGatherWait, 2 - layer));
    actions.push_back(compute(ActionKind::kForward, layer));
  }
  actions.push_back({.kind = ActionKind::kStep});
  for (const int32_t bucket : {2, 1, 0}) {
    actions.push_back(of_bucket(ActionKind::kUpdate, bucket));
    actions.push_back(of_bucket(ActionKind::kGather, bucket));
  }
  // The first gather ends 3 s after its update, two updates of 0.5 s later; the others 3 s apart.
  const PlayedStep step =
      play_step(schedule_of({actions}), seconds_of(1, {.gather = 3, .update = 0.5}));
  CHECK(step.stages.front().sums.exposed == 2 + 2 + 2);
  CHECK(step.seconds == 3 + 6 + 1.5);
}

TEST_CASE("a message waits for its receiver, and the receiver for it") {
  const Schedule schedule =
      schedule_of({{compute(ActionKind::kForward, 0), message(ActionKind::kSend, 1),
                    message(ActionKind::kSendWait, 1), compute(ActionKind::kForward, 1)},
                   {compute(ActionKind::kBackward, 0), message(ActionKind::kReceive, 0),
                    message(ActionKind::kReceiveWait, 0), compute(ActionKind::kForward, 0)}});
  const PlayedStep step = play_step(schedule, seconds_of(2, {}), PlayedDetail::kActions);
  // Sent at 1 s, asked for at 2 s, there at 3 s.
  CHECK(step.stages[0].sums.messages == 2);
  CHECK(step.stages[1].sums.messages == 1);
  CHECK(step.seconds == 4);
  CHECK(step.stages[0].calls[1].begin_s == 2);
  CHECK(step.stages[1].calls[1].end_s == 3);
}

TEST_CASE("who waits for a reduction in a pipeline delays the stage before") {
  std::vector<Action> last = {compute(ActionKind::kBackward, 2), of_bucket(ActionKind::kReduce, 0),
                              of_bucket(ActionKind::kReduceWait, 0), message(ActionKind::kSend, 0)};
  const std::vector<Action> first = {message(ActionKind::kReceive, 1),
                                     message(ActionKind::kReceiveWait, 1),
                                     compute(ActionKind::kBackward, 0)};
  const StepActionSeconds seconds = seconds_of(2, {.reduce = 5});
  CHECK(play_step(schedule_of({first, last}), seconds).seconds == 2 + 5 + 1 + 2);
  std::swap(last[2], last[3]);
  CHECK(play_step(schedule_of({first, last}), seconds).seconds == 7);
}

TEST_CASE("all stages agree before they update, and the slowest decides") {
  StepActionSeconds seconds = seconds_of(2, {.update = 1});
  seconds.agree = 0.5;
  const std::vector<Action> tail = {{.kind = ActionKind::kStep}, of_bucket(ActionKind::kUpdate, 0)};
  std::vector<Action> slow = {compute(ActionKind::kForward, 0), compute(ActionKind::kForward, 1)};
  std::vector<Action> quick = {compute(ActionKind::kForward, 0)};
  slow.insert(slow.end(), tail.begin(), tail.end());
  quick.insert(quick.end(), tail.begin(), tail.end());
  const PlayedStep step = play_step(schedule_of({quick, slow}), seconds);
  CHECK(step.stages[0].sums.messages == 1);
  CHECK(step.stages[0].sums.exposed == 0.5);
  CHECK(step.seconds == 3.5);
}

TEST_CASE("transfers to host memory run beside the computing of accelerators, and not of CPUs") {
  const Schedule schedule =
      schedule_of({{compute(ActionKind::kForward, 0), compute(ActionKind::kOffload, 0),
                    compute(ActionKind::kForward, 1), compute(ActionKind::kFetch, 0),
                    compute(ActionKind::kBackward, 1), compute(ActionKind::kBackward, 0)}});
  StepActionSeconds seconds = seconds_of(1, {});
  CHECK(play_step(schedule, seconds).seconds == 6 + 2 * 0.5);
  seconds.offloads_beside = true;
  CHECK(play_step(schedule, seconds).seconds == 6);
  seconds.layers[0].offload = 3;  // there and back from 1 s on
  CHECK(play_step(schedule, seconds).stages.front().sums.offloading == 3);
}
