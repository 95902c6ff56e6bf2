#include "time/stage_seconds.h"

#include <algorithm>

#include "smp/plan/framework/framework_catalog.h"
#include "time/step_messages.h"

namespace smp::time {
namespace {

void add_calls(StageSeconds& stage, const cost::CallSeconds& call, double count,
               double recomputed) {
  const double again = recomputed * call.recompute;
  stage.forward += count * call.forward();
  stage.backward += count * (call.backward() - call.recompute) + again;
  stage.weight += count * call.matmul_backward * call.weights_share;
  stage.add(TimePart::kMatmul, count * (call.matmul_forward + call.matmul_backward));
  stage.add(TimePart::kMemoryBound, count * (call.memory_forward + call.memory_backward));
  stage.add(TimePart::kLaunch, count * (call.launch_forward + call.launch_backward));
  stage.add(TimePart::kTensor, count * (call.tensor_forward + call.tensor_backward));
  stage.add(TimePart::kContext, count * (call.context_forward + call.context_backward));
  stage.add(TimePart::kExpert, count * (call.expert_forward + call.expert_backward));
  stage.add(TimePart::kRecompute, again);
}

// What computing does not hide of gathers and transfers, and what they slow it down.
void add_waits(StageSeconds& stage, const StageMessages& messages) {
  const double in_backward = messages.gather_backward_s + messages.reduce_backward_s;
  double hidden_forward = messages.hidden * std::min(messages.gather_forward_s, stage.forward);
  double hidden_backward = messages.hidden * std::min(in_backward, stage.backward);
  double slowed = messages.slowdown * (hidden_forward + hidden_backward);
  if (messages.once_s > 0) {
    // In our engine what they slow down hides them as well.
    const double slower = 1 + messages.slowdown;
    hidden_forward = std::min(messages.gather_forward_s, slower * stage.forward);
    hidden_backward = std::min(in_backward, slower * stage.backward);
    slowed = messages.slowdown * (std::min(messages.gather_forward_s, stage.forward) +
                                  std::min(in_backward, stage.backward));
    stage.once = messages.once_s;
  }
  const double gather = messages.gather_forward_s - hidden_forward;
  const double reduce = in_backward - hidden_backward;
  const double out = std::max(0.0, messages.offload_s - stage.forward) + messages.copies_s;
  const double back = std::max(0.0, messages.offload_s - stage.backward) + messages.copies_s;
  stage.forward += gather + out + messages.send_s / 2;
  stage.backward += reduce + back + slowed + messages.send_s / 2;
  stage.add(TimePart::kSharding, gather + reduce + slowed);
  stage.add(TimePart::kOffload, out + back);
  stage.add(TimePart::kPipeline, messages.send_s);
}

// Blocking messages: stages that have two neighbours wait for both, and the others for them.
void add_neighbour_waits(StageSeconds& stage, double share, int64_t stages) {
  const double wait = stages > 2 ? share * (1 - 2.0 / static_cast<double>(stages)) : 0;
  stage.add(TimePart::kPipeline, wait * stage.both());
  stage.forward *= 1 + wait;
  stage.backward *= 1 + wait;
}

}  // namespace

StageSeconds stage_seconds(const JobSpec& job, const choice::LayoutChoice& choice,
                           const cost::LayerBytes& bytes, const cost::LayerSeconds& layers,
                           const cost::StageHolds& holds, const cost::StageParameters& parameters) {
  const double repeated = choice.recompute_layers < 0 || holds.blocks == 0
                              ? 1
                              : std::min(1.0, choice.recompute_layers / holds.blocks);
  StageSeconds seconds;
  const auto add = [&](size_t kind) {
    const double count = holds.of_kind[kind];
    if (count > 0) add_calls(seconds, layers.of_kind[kind], count, repeated * count);
  };
  const cost::LayerKinds& kinds = *layers.kinds;
  for (size_t kind = kinds.first_block(); kind < kinds.end_blocks(); ++kind) add(kind);
  for (size_t kind = 0; kind < kinds.first_block(); ++kind) add(kind);
  for (size_t kind = kinds.end_blocks(); kind < kinds.size(); ++kind) add(kind);
  add_waits(seconds, stage_messages(job, choice, bytes, holds, parameters));
  add_neighbour_waits(seconds, framework::framework_model(job).neighbour_wait, choice.pipeline);
  return seconds;
}

}  // namespace smp::time
