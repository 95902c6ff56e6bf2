#include <algorithm>

#include "schedule/schedule_stage_check.h"

// The rules for the saved tensors of a stage's calls: recomputed, offloaded or kept on the device.
namespace smp::schedule {

size_t StageCheck::call(const Action& action) const {
  return static_cast<size_t>(place(action.layer) * shape_.microbatches + action.microbatch);
}

// Whether the call is between its forward and its backward.
StageCheck::Problem StageCheck::not_kept(const Action& action) const {
  if (Problem problem = place_of(action)) return problem;
  const std::vector<int64_t>& layers = chunk_layers(action);
  const auto at =
      static_cast<int32_t>(std::find(layers.begin(), layers.end(), action.layer) - layers.begin());
  if (forwards_[unit(action)] <= at) return "forward of this microbatch has not passed the layer";
  const auto left = static_cast<int32_t>(layers.size()) - backwards_[unit(action)];
  if (at >= left) return "backward of this microbatch has passed the layer";
  return std::nullopt;
}

StageCheck::Problem StageCheck::recompute(const Action& action) {
  if (Problem problem = not_kept(action)) return problem;
  const int64_t checkpoint = checkpoint_of(parameters_, action.layer);
  if (checkpoint < 0) return "the layer is not recomputed";
  if (recomputed_[call(action)]) return "the action was already done";
  if (checkpoint == action.layer) {
    if (Problem problem = on_host(action)) return problem;
  } else {
    Action before = action;
    before.layer = action.layer - 1;  // a run lies in one chunk
    if (!recomputed_[call(before)]) return "the previous layer has not been recomputed";
  }
  recomputed_[call(action)] = true;
  return std::nullopt;
}

StageCheck::Problem StageCheck::offload(const Action& action) {
  if (Problem problem = not_kept(action)) return problem;
  if (!is_offloaded(parameters_, action.layer)) return "the layer's calls are not offloaded";
  Progress& progress = offloaded_[call(action)];
  if (progress != Progress::kNone) return "the action was already done";
  progress = Progress::kStarted;
  return std::nullopt;
}

StageCheck::Problem StageCheck::fetch(const Action& action) {
  if (Problem problem = not_kept(action)) return problem;
  if (!is_offloaded(parameters_, action.layer)) return "the layer's calls are not offloaded";
  Progress& progress = offloaded_[call(action)];
  if (progress == Progress::kNone) return "the call was never offloaded";
  if (progress == Progress::kEnded) return "the action was already done";
  progress = Progress::kEnded;
  return std::nullopt;
}

StageCheck::Problem StageCheck::on_host(const Action& action) const {
  if (offloaded_.empty() || offloaded_[call(action)] != Progress::kStarted) return std::nullopt;
  return "the call's saved tensors are on the host";
}

// Returns what the backward lacks of its call's saved tensors.
StageCheck::Problem StageCheck::kept_missing(const Action& action) const {
  if (checkpoint_of(parameters_, action.layer) < 0) return on_host(action);
  if (!recomputed_[call(action)]) return "the layer has not been recomputed";
  return std::nullopt;
}

}  // namespace smp::schedule
