#include "time/stage_seconds.h"

#include <algorithm>

#include "memory/stage_terms.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/plan/model/frozen_parts.h"
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
  const double hidden_forward =
      messages.hidden * std::min(messages.gather_forward_s, stage.forward);
  const double hidden_backward = messages.hidden * std::min(in_backward, stage.backward);
  const double gather = messages.gather_forward_s - hidden_forward;
  const double reduce = in_backward - hidden_backward;
  const double slowed = messages.slowdown * (hidden_forward + hidden_backward);
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

const cost::CallSeconds& call_of(const cost::LayerSeconds& layers, const JobSpec& job,
                                 const model::LayerSpec& layer) {
  const model::LayerKind kind = layer.kind;
  if (model::is_frozen_block(job, layer)) {
    return kind == model::LayerKind::kMoeBlock     ? layers.frozen_moe_block
           : kind == model::LayerKind::kCrossBlock ? layers.frozen_cross_block
                                                   : layers.frozen_block;
  }
  return kind == model::LayerKind::kEmbedding    ? layers.embedding
         : model::makes_loss(kind)               ? layers.head
         : kind == model::LayerKind::kMoeBlock   ? layers.moe_block
         : kind == model::LayerKind::kCrossBlock ? layers.cross_block
                                                 : layers.block;
}

double seconds_of(const cost::LayerSeconds& layers, const JobSpec& job,
                  const model::LayerSpec& layer) {
  const cost::CallSeconds& call = call_of(layers, job, layer);
  return call.forward() + call.backward();
}

StageContent stage_content(const JobSpec& job, const choice::LayoutChoice& choice,
                           const cost::LayerBytes& bytes, int64_t stage) {
  const cost::StageBlocks blocks =
      cost::stage_blocks(job.model, choice, stage, model::frozen_blocks(job));
  const memory::StageHolds holds = memory::stage_holds(job.model, choice, stage, blocks);
  return {blocks, parameters_of(job, bytes, holds)};
}

StageSeconds stage_seconds(const JobSpec& job, const choice::LayoutChoice& choice,
                           const cost::LayerBytes& bytes, const cost::LayerSeconds& layers,
                           int64_t stage, const StageContent& content) {
  const cost::StageBlocks& blocks = content.blocks;
  const double count = blocks.all();
  const double repeated = choice.recompute_layers < 0 || count == 0
                              ? 1
                              : std::min(1.0, choice.recompute_layers / count);
  StageSeconds seconds;
  const auto add = [&](const cost::CallSeconds& trained, const cost::CallSeconds& frozen,
                       double all, double of_frozen) {
    add_calls(seconds, trained, all - of_frozen, repeated * (all - of_frozen));
    if (of_frozen > 0) add_calls(seconds, frozen, of_frozen, repeated * of_frozen);
  };
  add(layers.block, layers.frozen_block, blocks.dense, blocks.frozen_dense);
  if (blocks.moe > 0) add(layers.moe_block, layers.frozen_moe_block, blocks.moe, blocks.frozen_moe);
  if (blocks.cross > 0) {
    add(layers.cross_block, layers.frozen_cross_block, blocks.cross, blocks.frozen_cross);
  }
  if (stage == 0) add_calls(seconds, layers.embedding, 1, 0);
  if (cost::holds_head(choice, stage)) {
    // Layers that predict further tokens are a block and a head each.
    const auto further = static_cast<double>(job.model.num_mtp_layers);
    add_calls(seconds, layers.head, 1 + further, 0);
    const cost::CallSeconds& block = job.model.num_experts > 0 ? layers.moe_block : layers.block;
    if (further > 0) add_calls(seconds, block, further, repeated * further);
  }
  add_waits(seconds, stage_messages(job, choice, bytes, blocks, content.parameters));
  add_neighbour_waits(seconds, framework::framework_model(job).neighbour_wait, choice.pipeline);
  return seconds;
}

}  // namespace smp::time
