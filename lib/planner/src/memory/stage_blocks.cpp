#include "memory/stage_blocks.h"

#include <algorithm>

#include "cost/in_engine.h"
#include "smp/plan/framework/framework_catalog.h"

namespace smp::memory {

double share_that_recomputes(const choice::LayoutChoice& choice, double blocks) {
  if (choice.recompute == Recompute::kNone || blocks <= 0) return 0;
  if (choice.recompute_layers < 0) return 1;
  return std::min(1.0, static_cast<double>(choice.recompute_layers) / blocks);
}

double freed_outputs(const JobSpec& job, const choice::LayoutChoice& choice, bool head,
                     double live) {
  // In our engine one of them is still being sent.
  const double freed = job.cluster.device == DeviceKind::kCpu
                           ? (cost::runs_in_engine(job) ? std::max(0.0, live - 1) : 0)
                           : (framework::framework_model(job).frees_sent_outputs ? live : 0);
  const double chunks = choice.pipeline > 1 ? choice.virtual_stages : 1;
  return freed * (chunks - (head ? 1 : 0));
}

double kept_by_call(const cost::CallBytes& call, Recompute recompute) {
  return recompute == Recompute::kFull        ? call.checkpoint
         : recompute == Recompute::kSelective ? call.selective
                                              : call.saved;
}

BlocksKept blocks_kept(const choice::LayoutChoice& choice, const cost::LayerBytes& layers,
                       const cost::StageHolds& holds) {
  const cost::LayerKinds& kinds = *layers.kinds;
  const double share = share_that_recomputes(choice, holds.all_blocks());
  BlocksKept sum;
  for (size_t kind = kinds.first_block(); kind < kinds.head(); ++kind) {
    const double calls = holds.of_kind[kind];
    if (calls <= 0) continue;
    const cost::CallBytes& call = layers.of_kind[kind].call;
    const double recomputing = calls * share;
    sum.kept += (calls - recomputing) * call.saved;
    double again = 0;
    if (choice.recompute == Recompute::kSelective) {
      sum.kept += recomputing * call.selective;
      if (share > 0) again = call.saved - call.selective;
    } else if (choice.recompute == Recompute::kFull) {
      sum.checkpoints += recomputing * call.checkpoint;
      if (share > 0) again = call.recomputed;
    }
    if (again + call.workspace > sum.again + sum.workspace) {
      sum.again = again;
      sum.workspace = call.workspace;
    }
    sum.forward = std::max(sum.forward, call.forward - call.saved);
  }
  if (holds.frozen_chunks == 0) return sum;
  // Where no gradient passes through them, the last frozen block of a chunk keeps its output alone.
  const cost::CallBytes& frozen = layers.of_kind[kinds.first_block()].call;
  if (is_forward_alone(frozen)) {
    (choice.recompute == Recompute::kFull ? sum.checkpoints : sum.kept) +=
        holds.frozen_chunks * frozen.output;
  }
  return sum;
}

double offload_window(const JobSpec& job, const choice::LayoutChoice& choice,
                      const cost::LayerBytes& layers, double blocks) {
  double each = 0;  // of the widest
  for (size_t kind = layers.kinds->first_block(); kind < layers.kinds->head(); ++kind) {
    each = std::max(each, kept_by_call(layers.of_kind[kind].call, choice.recompute));
  }
  if (framework::framework_model(job).fetches_checkpoints_late &&
      choice.recompute == Recompute::kFull)
    return each;
  return std::min(static_cast<double>(job.parallel.activation_loading_horizon + 1), blocks) * each;
}

}  // namespace smp::memory
