#include <doctest/doctest.h>

#include <algorithm>

#include "plan/schedule/damaged_schedules.h"

using namespace smp;
using namespace smp::schedule;

namespace {

constexpr PipelineKind kKinds[] = {PipelineKind::kSimple, PipelineKind::kInterleaved,
                                   PipelineKind::kVirtual, PipelineKind::kZbH1, PipelineKind::kZbV};

ScheduleParameters parameters_of(PipelineKind kind, int64_t stages, int64_t microbatches) {
  return sample_parameters({.stages = stages,
                            .microbatches = microbatches,
                            .kind = kind,
                            .blocks_per_stage = 3,
                            .tied = stages > 1 && kind != PipelineKind::kZbV,
                            .virtual_stages = kind == PipelineKind::kVirtual ? 2 : 1});
}

// Blocks are computed again, `group` of a chunk from one checkpoint; all are offloaded.
void keep_little(ScheduleParameters& parameters, int64_t group, int64_t horizon) {
  const auto count = static_cast<size_t>(parameters.head_layer + 1);
  parameters.checkpoints.assign(count, -1);
  parameters.offloaded.assign(count, false);
  parameters.loading_horizon = horizon;
  for (const auto& chunks : parameters.layers) {
    for (const std::vector<int64_t>& layers : chunks) {
      int64_t blocks = 0;
      int64_t first = -1;
      for (const int64_t layer : layers) {
        if (layer == 0 || layer == parameters.head_layer) continue;
        if (blocks++ % group == 0) first = layer;
        parameters.checkpoints[static_cast<size_t>(layer)] = first;
        parameters.offloaded[static_cast<size_t>(layer)] = true;
      }
    }
  }
}

std::string verdict(const Schedule& schedule, const ScheduleParameters& parameters) {
  return verify(schedule, parameters).value_or("all is well");
}

int64_t count(const Schedule& schedule, ActionKind kind) {
  int64_t found = 0;
  for (const auto& actions : schedule.actions) {
    found += std::count_if(actions.begin(), actions.end(),
                           [&](const Action& action) { return action.kind == kind; });
  }
  return found;
}

}  // namespace

TEST_CASE("recompute, offload and fetch stand where they must, in every schedule") {
  for (const PipelineKind kind : kKinds) {
    for (const int64_t stages : {1, 2, 4}) {
      for (const int64_t microbatches : {1, 4, 8}) {
        for (const int64_t group : {1, 2, 5}) {
          ScheduleParameters parameters = parameters_of(kind, stages, microbatches);
          if (schedule_refused(parameters.shape)) continue;
          keep_little(parameters, group, 2);
          const Schedule schedule = make_schedule(parameters);
          CHECK(verdict(schedule, parameters) == "all is well");
          const int64_t blocks = parameters.head_layer - 1;
          CHECK(count(schedule, ActionKind::kRecompute) == blocks * microbatches);
          CHECK(count(schedule, ActionKind::kOffload) == count(schedule, ActionKind::kFetch));
        }
      }
    }
  }
}

TEST_CASE("a call comes back a horizon ahead of its use, or does not leave") {
  ScheduleParameters parameters = parameters_of(PipelineKind::kInterleaved, 1, 2);
  keep_little(parameters, 1, 2);
  const std::vector<std::string> lines = listing(make_schedule(parameters), 0);
  const std::vector<std::string> expected = {
      "forward microbatch 0 layer 0",   "forward microbatch 0 layer 1",
      "offload microbatch 0 layer 1",   "forward microbatch 0 layer 2",
      "offload microbatch 0 layer 2",   "forward microbatch 0 layer 3",
      "offload microbatch 0 layer 3",   "forward microbatch 0 layer 4",
      "backward microbatch 0 layer 4",  "fetch microbatch 0 layer 3",
      "fetch microbatch 0 layer 2",     "fetch microbatch 0 layer 1",
      "recompute microbatch 0 layer 3", "backward microbatch 0 layer 3"};
  REQUIRE(lines.size() > expected.size());
  CHECK(std::vector<std::string>(lines.begin(), lines.begin() + 14) == expected);
  // Of the second microbatch the last layers would have to be back before they left.
  CHECK(std::count(lines.begin(), lines.end(), "offload microbatch 1 layer 3") == 0);
  CHECK(std::count(lines.begin(), lines.end(), "offload microbatch 1 layer 1") == 1);
}

TEST_CASE("verify: recompute, offload and fetch out of place") {
  ScheduleParameters parameters = parameters_of(PipelineKind::kInterleaved, 1, 1);
  keep_little(parameters, 1, 1);
  const Schedule whole = make_schedule(parameters);
  const auto broken = [&](const std::string& without, const std::string& twice) {
    Schedule schedule = whole;
    std::vector<Action>& actions = schedule.actions[0];
    if (!without.empty()) {
      actions.erase(actions.begin() + static_cast<std::ptrdiff_t>(find(actions, without)));
    }
    if (!twice.empty()) {
      const size_t at = find(actions, twice);
      actions.insert(actions.begin() + static_cast<std::ptrdiff_t>(at), actions[at]);
    }
    const std::string text = verdict(schedule, parameters);
    return text.substr(text.rfind(": ") + 2);
  };
  CHECK(broken("recompute microbatch 0 layer 2", "") == "the layer has not been recomputed");
  CHECK(broken("fetch microbatch 0 layer 1", "") == "the call's saved tensors are on the host");
  CHECK(broken("offload microbatch 0 layer 1", "") == "the call was never offloaded");
  CHECK(broken("", "offload microbatch 0 layer 1") == "the action was already done");
  CHECK(broken("", "fetch microbatch 0 layer 1") == "the action was already done");
  CHECK(broken("", "recompute microbatch 0 layer 1") == "the action was already done");
  CHECK(broken("forward microbatch 0 layer 1", "") ==
        "forward of this microbatch has not passed the layer");
}

TEST_CASE("evaluation: every schedule's chunks forward alone, one microbatch live") {
  for (const PipelineKind kind : kKinds) {
    for (const int64_t stages : {1, 2, 3, 5}) {
      for (const int64_t microbatches : {1, 5, 10, 30}) {
        ScheduleParameters parameters = parameters_of(kind, stages, microbatches);
        if (schedule_refused(parameters.shape)) continue;
        parameters.shape.forward_only = true;
        Schedule schedule = make_schedule(parameters);
        CHECK(verdict(schedule, parameters) == "all is well");
        CHECK(count(schedule, ActionKind::kForward) == (parameters.head_layer + 1) * microbatches);
        CHECK(count(schedule, ActionKind::kStep) == 0);
        for (int64_t stage = 0; stage < stages; ++stage) CHECK(max_live(schedule, stage) == 1);
      }
    }
  }
}

TEST_CASE("verify: evaluation makes no gradients") {
  ScheduleParameters parameters = parameters_of(PipelineKind::kInterleaved, 1, 1);
  parameters.shape.forward_only = true;
  Schedule schedule = make_schedule(parameters);
  schedule.actions[0].push_back({.kind = ActionKind::kStep});
  CHECK(verdict(schedule, parameters) == "stage 0, action 5 (step): this schedule evaluates");
  schedule.actions[0].back() = {.kind = ActionKind::kBackward, .microbatch = 0, .layer = 4};
  CHECK(verdict(schedule, parameters) ==
        "stage 0, action 5 (backward microbatch 0 layer 4): this schedule evaluates");
  schedule.actions[0].resize(4);
  CHECK(verdict(schedule, parameters) ==
        "stage 0, at its end: a microbatch has not passed all layers");
}
