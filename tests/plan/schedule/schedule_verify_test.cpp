#include <doctest/doctest.h>

#include <algorithm>

#include "plan/schedule/damaged_schedules.h"

using namespace smp;
using namespace smp::schedule;

namespace {

void swap_actions(Actions& actions, const std::string& a, const std::string& b) {
  std::swap(actions[find(actions, a)], actions[find(actions, b)]);
}

const SampleSchedule kTwoStages{.stages = 2, .microbatches = 3};
const SampleSchedule kTied{
    .stages = 2, .microbatches = 2, .buckets = true, .sharded = true, .tied = true};

}  // namespace

TEST_CASE("verify: swapped layers, passes and microbatches") {
  CHECK(verdict_of_stages(kTwoStages,
                          [](auto& s) {
                            swap_actions(s[0], "forward microbatch 0 layer 0",
                                         "forward microbatch 0 layer 1");
                          }) ==
        "stage 0, action 0 (forward microbatch 0 layer 1): forward of layer 0 comes next for this "
        "microbatch");
  CHECK(verdict_of_stages(kTwoStages,
                          [](auto& s) {
                            swap_actions(s[0], "backward microbatch 0 layer 1",
                                         "backward microbatch 0 layer 0");
                          }) ==
        "stage 0, action 9 (backward microbatch 0 layer 0): backward of layer 1 comes next for "
        "this microbatch");
  CHECK(verdict_of_stages(kTwoStages,
                          [](auto& s) {
                            swap_actions(s[1], "forward microbatch 0 layer 3",
                                         "backward microbatch 0 layer 3");
                          }) ==
        "stage 1, action 3 (backward microbatch 0 layer 3): forward of this microbatch has not "
        "ended on this stage");
  CHECK(verdict_of_stages(kTwoStages,
                          [](auto& s) {
                            swap_actions(s[1], "forward microbatch 0 layer 2",
                                         "forward microbatch 1 layer 2");
                          }) ==
        "stage 1, action 2 (forward microbatch 1 layer 2): the input of the layer has not arrived");
}

TEST_CASE("verify: missing computation") {
  CHECK(verdict_of_stages(kTwoStages, [](auto& s) {
          remove(s[0], "backward microbatch 2 layer 0");
        }) == "stage 0, action 23 (step): a microbatch has not passed layer 0 backward");
  CHECK(verdict_of_stages(kTwoStages,
                          [](auto& s) { remove(s[1], "forward microbatch 1 layer 3"); }) ==
        "stage 1, action 12 (backward microbatch 1 layer 3): forward of this microbatch has not "
        "ended on this stage");
  CHECK(verdict_of_stages(kTwoStages,
                          [](auto& s) {
                            remove(s[0], "step");
                            remove(s[0], "update");
                          }) ==
        "deadlock: no stage can proceed\n  stage 0 has ended\n  stage 1, action 24 (step): stage 0 "
        "has not reached its step");
  CHECK(verdict_of_stages(kTwoStages, [](auto& s) {
          for (Actions& stage : s) {
            remove(stage, "step");
            remove(stage, "update");
          }
        }) == "stage 0, at its end: the step is missing");
}

TEST_CASE("verify: doubled actions") {
  CHECK(verdict_of_stages(kTwoStages,
                          [](auto& s) { repeat(s[0], "forward microbatch 0 layer 1"); }) ==
        "stage 0, action 2 (forward microbatch 0 layer 1): the microbatch has already passed all "
        "layers of this stage");
  CHECK(verdict_of_stages(kTwoStages,
                          [](auto& s) { repeat(s[1], "backward microbatch 0 layer 2"); }) ==
        "stage 1, action 7 (backward microbatch 0 layer 2): backward of this microbatch has "
        "already ended");
  CHECK(verdict_of_stages(
            kTwoStages, [](auto& s) { repeat(s[0], "send activation microbatch 0 to stage 1"); }) ==
        "stage 0, action 3 (send activation microbatch 0 to stage 1): the action was already "
        "started");
  CHECK(verdict_of_stages(
            kTwoStages,
            [](auto& s) { repeat(s[1], "receive_wait activation microbatch 0 from stage 0"); }) ==
        "stage 1, action 2 (receive_wait activation microbatch 0 from stage 0): the action was "
        "already awaited");
  CHECK(verdict_of_stages(kTwoStages, [](auto& s) { repeat(s[0], "step"); }) ==
        "stage 0, action 25 (step): the step was already done");
}

TEST_CASE("verify: data used before they are there") {
  CHECK(verdict_of_stages(
            kTwoStages,
            [](auto& s) { remove(s[1], "receive_wait activation microbatch 0 from stage 0"); }) ==
        "stage 1, action 1 (forward microbatch 0 layer 2): the input of the layer has not arrived");
  CHECK(verdict_of_stages(
            kTwoStages,
            [](auto& s) { remove(s[0], "receive_wait gradient microbatch 1 from stage 1"); }) ==
        "stage 0, action 17 (backward microbatch 1 layer 1): the gradient of the layer's output "
        "has not arrived");
  CHECK(
      verdict_of_stages(kTwoStages,
                        [](auto& s) {
                          move_before(s[0], "send activation microbatch 0 to stage 1",
                                      "forward microbatch 0 layer 1");
                        }) ==
      "stage 0, action 1 (send activation microbatch 0 to stage 1): the output does not exist yet");
  CHECK(
      verdict_of_stages(kTwoStages,
                        [](auto& s) {
                          move_before(s[1], "send gradient microbatch 0 to stage 0",
                                      "backward microbatch 0 layer 2");
                        }) ==
      "stage 1, action 6 (send gradient microbatch 0 to stage 0): the gradient does not exist yet");
}

TEST_CASE("verify: messages that do not meet") {
  CHECK(verdict_of_stages(kTwoStages,
                          [](auto& s) {
                            // Both sides are in order by themselves, but stage 1 asks for
                            // microbatch 1 first.
                            std::swap(
                                s[1][find(s[1], "receive activation microbatch 0 from stage 0")],
                                s[1][find(s[1], "receive activation microbatch 1 from stage 0")]);
                          }) ==
        "message 0 of channel 0 -> 1 differs on its two sides:\n"
        "  sent by stage 0, action 2 (send activation microbatch 0 to stage 1)\n"
        "  received by stage 1, action 0 (receive activation microbatch 1 from stage 0)");
  CHECK(verdict_of_stages(
            kTwoStages, [](auto& s) { remove(s[0], "send activation microbatch 1 to stage 1"); }) ==
        "stage 0, action 10 (send_wait activation microbatch 1 to stage 1): the awaited action was "
        "never started");
  CHECK(verdict_of_stages(kTwoStages,
                          [](auto& s) {
                            remove(s[0], "send activation microbatch 2 to stage 1");
                            remove(s[0], "send_wait activation microbatch 2 to stage 1");
                          }) ==
        "deadlock: no stage can proceed\n  stage 0, action 19 (receive_wait gradient microbatch 2 "
        "from stage 1): stage 1 has not sent the message\n  stage 1, action 16 (receive_wait "
        "activation microbatch 2 from stage 0): stage 0 has not sent the message");
  CHECK(verdict_of_stages(kTwoStages, [](auto& s) {
          remove(s[0], "receive gradient microbatch 2 from stage 1");
          remove(s[0], "receive_wait gradient microbatch 2 from stage 1");
        }).find("the gradient of the layer's output has not arrived") != std::string::npos);
  CHECK(verdict_of_stages(kTwoStages,
                          [](auto& s) {
                            s[0][find(s[0], "send activation microbatch 0 to stage 1")].peer = 0;
                          }) ==
        "stage 0, action 2 (send activation microbatch 0 to stage 0): the peer must be stage 1");
  CHECK(verdict_of_stages(kTwoStages, [](auto& s) { s[1][0].payload = Payload::kGradient; }) ==
        "stage 1, action 0 (receive gradient microbatch 0 from stage 0): the stage has no "
        "neighbour in this direction");
}

TEST_CASE("verify: a send that nobody waits for") {
  CHECK(verdict_of_stages(kTwoStages, [](auto& s) {
          remove(s[0], "send_wait activation microbatch 2 to stage 1");
        }) == "stage 0, at its end: no action waits for 'send activation microbatch 2'");
}

TEST_CASE("verify: sends that wait for each other's receives deadlock") {
  // Each side insists that its send has ended before it begins to receive.
  const auto stuck = [](auto& s) {
    move_before(s[0], "send_wait activation microbatch 1 to stage 1",
                "receive_wait gradient microbatch 0 from stage 1");
    move_before(s[1], "send_wait gradient microbatch 0 to stage 0",
                "receive_wait activation microbatch 1 from stage 0");
    move_before(s[0], "receive gradient microbatch 0 from stage 1",
                "receive_wait gradient microbatch 0 from stage 1");
    move_before(s[1], "receive activation microbatch 1 from stage 0",
                "receive_wait activation microbatch 1 from stage 0");
  };
  CHECK(verdict_of_stages(kTwoStages, stuck) ==
        "deadlock: no stage can proceed\n  stage 0, action 7 (send_wait activation microbatch 1 to "
        "stage 1): stage 1 has not begun to receive the message\n  stage 1, action 7 (send_wait "
        "gradient microbatch 0 to stage 0): stage 0 has not begun to receive the message");
}

TEST_CASE("verify: more live microbatches than promised") {
  CHECK(
      verdict_of_stages(kTwoStages,
                        [](auto& s) {
                          // All forward first: the third microbatch is one too many for stage 0.
                          for (const char* text :
                               {"forward microbatch 2 layer 0", "forward microbatch 2 layer 1"}) {
                            move_before(s[0], text,
                                        "receive_wait gradient microbatch 0 from stage 1");
                          }
                        }) ==
      "stage 0, action 8 (forward microbatch 2 layer 0): 3 microbatches are live, the bound is 2");
  const ScheduleParameters parameters = sample_parameters(
      {.stages = 2, .microbatches = 3, .kind = PipelineKind::kSimple, .active_microbatches = 2});
  Schedule schedule = make_schedule(parameters);
  schedule.live_bound[1] = 3;
  CHECK(verify(schedule, parameters).value() ==
        "stage 1 promises 3 live microbatches, active_microbatches is 2");
}

TEST_CASE("verify: gradients are reduced when complete, once, before the step") {
  CHECK(verdict_of_stages(kTied, [](auto& s) {
          move_before(s[1], "reduce bucket 0", "backward microbatch 1 layer 3");
        }) == "stage 1, action 14 (reduce bucket 0): a microbatch has not passed layer 3 backward");
  CHECK(verdict_of_stages(kTied, [](auto& s) { repeat(s[1], "reduce bucket 0"); }) ==
        "stage 1, action 16 (reduce bucket 0): the action was already started");
  CHECK(verdict_of_stages(kTied, [](auto& s) { remove(s[1], "reduce_wait bucket 1"); }) ==
        "stage 1, action 24 (gradient_norm bucket 1): bucket 1 is not reduced yet");
  CHECK(verdict_of_stages(kTied, [](auto& s) { s[1][find(s[1], "reduce bucket 1")].bucket = 5; }) ==
        "stage 1, action 17 (reduce bucket 5): the bucket is not of this stage");
  const SampleSchedule kv{.buckets = true, .kv_replicated = true};
  CHECK(verdict_of_stages(kv, [](auto& s) { remove(s[0], "reduce_kv layer 1"); }) ==
        "stage 0, action 6 (reduce bucket 1): the KV gradients of layer 1 are not summed yet");
  CHECK(verdict_of_stages({.kv_replicated = true}, [](auto& s) {
          remove(s[0], "reduce_kv layer 1");
        }) == "stage 0, action 6 (step): the KV gradients of layer 1 are not summed yet");
  CHECK(verdict_of_stages({.kv_replicated = true}, [](auto& s) { s[0][5].layer = 2; }) ==
        "stage 0, action 5 (reduce_kv layer 2): the layer is not a block of this stage");
}

TEST_CASE("verify: the loads of routers are summed between forwards and backwards") {
  const SampleSchedule sample{
      .stages = 3, .microbatches = 4, .kind = PipelineKind::kSimple, .router_loads = true};
  const ScheduleParameters parameters = sample_parameters(sample);
  const Schedule schedule = make_schedule(parameters);
  CHECK(!verify(schedule, parameters));
  for (const auto& actions : schedule.actions) {
    CHECK(std::count_if(actions.begin(), actions.end(), [](const Action& action) {
            return action.kind == ActionKind::kRouterLoads;
          }) == 1);
  }
  CHECK(verdict_of_stages(sample, [](auto& s) { remove(s[2], "router_loads"); }) ==
        "stage 2, action 16 (backward microbatch 0 layer 4): the loads of the routers are not "
        "summed yet");
  SampleSchedule alone = sample;
  alone.stages = 1;
  CHECK(verdict_of_stages(alone, [](auto& s) {
          move_before(s[0], "router_loads", "forward microbatch 3 layer 0");
        }) == "stage 0, action 9 (router_loads): forward of microbatch 3 has not ended");
  // It waits for a gradient of a stage that waits for it.
  const std::string stuck = verdict_of_stages(sample, [](auto& s) {
    move_before(s[1], "receive_wait gradient microbatch 0 from stage 2", "router_loads");
  });
  CHECK(stuck.starts_with("deadlock"));
  CHECK(stuck.find("(router_loads): stage 1 has not reached its router_loads") !=
        std::string::npos);
  const Schedule one = make_schedule(sample_parameters({.stages = 2, .router_loads = true}));
  CHECK(!verify(one, sample_parameters({.stages = 2, .router_loads = true})));
}

TEST_CASE("verify: a tied embedding's gradient and weight take their ways in order") {
  CHECK(verdict_of_stages(kTied, [](auto& s) {
          move_before(s[0], "reduce bucket 1", "receive_wait tied_gradient from stage 1");
        }) == "stage 0, action 19 (reduce bucket 1): the tied gradient has not arrived");
  CHECK(verdict_of_stages(kTied, [](auto& s) {
          move_before(s[0], "send tied_weight to stage 1", "gather_wait bucket 1");
        }) == "stage 0, action 30 (send tied_weight to stage 1): the weight is not gathered yet");
  CHECK(verdict_of_stages(kTied,
                          [](auto& s) {
                            remove(s[1], "receive tied_weight from stage 0");
                            remove(s[1], "receive_wait tied_weight from stage 0");
                          }) ==
        "deadlock: no stage can proceed\n  stage 0, action 32 (send_wait tied_weight to stage 1): "
        "stage 1 has not begun to receive the message\n  stage 1 has ended");
  CHECK(verdict_of_stages(kTied,
                          [](auto& s) {
                            // With two stages the tied gradient shares the channel of the
                            // activations' gradients.
                            move_before(s[1], "send tied_gradient to stage 0",
                                        "send gradient microbatch 1 to stage 0");
                          }) ==
        "message 1 of channel 1 -> 0 differs on its two sides:\n"
        "  sent by stage 1, action 18 (send tied_gradient to stage 0)\n"
        "  received by stage 0, action 10 (receive gradient microbatch 1 from stage 1)");
  CHECK(
      verdict_of_stages(kTwoStages, [](auto& s) {
        s[1].push_back({.kind = ActionKind::kReceive, .payload = Payload::kTiedWeight, .peer = 0});
      }) == "stage 1, action 26 (receive tied_weight from stage 0): the stages share no embedding");
}

TEST_CASE("verify: updated weights are gathered, all of them, and waited for by the next step") {
  CHECK(verdict_of_stages(kTied, [](auto& s) { move_before(s[0], "gather bucket 0", "step"); }) ==
        "stage 0, action 25 (gather bucket 0): the weights are not updated yet");
  CHECK(verdict_of_stages(kTied, [](auto& s) { remove(s[1], "gather bucket 0"); }) ==
        "stage 1, at its end: the weights of bucket 0 are not gathered");
  CHECK(verdict_of_stages(kTied, [](auto& s) { remove(s[1], "gather_wait bucket 0"); }) ==
        "stage 1, action 4 (forward microbatch 0 layer 3): the weights of bucket 0 are not "
        "gathered");
  CHECK(
      verdict_of_stages(
          kTied, [](auto& s) { s[1].push_back({.kind = ActionKind::kGatherWait, .bucket = 0}); }) ==
      "stage 1, at its end: the weights of bucket 0 were awaited here, not where the next step "
      "uses them");
  CHECK(verdict_of_stages(kTied, [](auto& s) {
          remove(s[0], "gather_wait bucket 1");
        }).ends_with("(send tied_weight to stage 1): the weight is not gathered yet"));
  CHECK(verdict_of_stages({.buckets = true}, [](auto& s) {
          s[0].push_back({.kind = ActionKind::kGather, .bucket = 0});
        }) == "stage 0, action 19 (gather bucket 0): the weights are not sharded");
}

TEST_CASE("verify: each bucket is updated once, after the step or where nothing is to be known") {
  CHECK(verdict_of_stages(kTied, [](auto& s) { move_before(s[0], "update bucket 0", "step"); }) ==
        "stage 0, action 25 (update bucket 0): the norm of all gradients is not known yet");
  CHECK(
      verdict_of_stages(kTied, [](auto& s) {
        repeat(s[0], "update bucket 0");
      }).ends_with("(update bucket 0): the gather of the step before may still read the weights"));
  CHECK(verdict_of_stages({.buckets = true}, [](auto& s) {
          repeat(s[0], "update bucket 0");
        }).ends_with("(update bucket 0): the action was already done"));
  CHECK(verdict_of_stages({.buckets = true}, [](auto& s) { remove(s[0], "update bucket 2"); }) ==
        "stage 0, at its end: the weights of bucket 2 are not updated");
  CHECK(verdict_of_stages(kTwoStages, [](auto& s) { remove(s[1], "update"); }) ==
        "stage 1, at its end: the weights are not updated");
  CHECK(verdict_of_stages(kTwoStages, [](auto& s) {
          s[1].back().bucket = 0;
        }).ends_with("(update bucket 0): the bucket is not of this stage"));
  const SampleSchedule early{.buckets = true, .early_updates = true};
  CHECK(verdict_of_stages(early, [](auto& s) {
          move_before(s[0], "update bucket 1", "reduce_wait bucket 1");
        }).ends_with("(update bucket 1): bucket 1 is not reduced yet"));
  CHECK(verdict_of_stages(
            early, [](auto& s) { move_before(s[0], "forward microbatch 0 layer 0", "step"); })
            .ends_with("(forward microbatch 0 layer 1): forward of layer 0 comes next for this "
                       "microbatch"));
}

TEST_CASE("verify: places outside the job") {
  CHECK(verdict_of_stages(kTwoStages, [](auto& s) { s[0][0].microbatch = 7; }) ==
        "stage 0, action 0 (forward microbatch 7 layer 0): there are microbatches 0 to 2 only");
  CHECK(verdict_of_stages(kTwoStages, [](auto& s) { s[0][0].layer = 3; }) ==
        "stage 0, action 0 (forward microbatch 0 layer 3): the layer is not of this stage");
  CHECK(verdict_of_stages(kTwoStages, [](auto& s) {
          s[0].push_back({.kind = ActionKind::kForward, .microbatch = 0, .layer = 0});
        }) == "stage 0, action 26 (forward microbatch 0 layer 0): the action comes after the step");
}
