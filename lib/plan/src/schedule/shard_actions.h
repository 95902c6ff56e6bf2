#pragma once

#include <array>
#include <vector>

#include "smp/plan/schedule/action.h"
#include "smp/plan/schedule/schedule_parameters.h"

namespace smp::schedule {

// Adds the gathers of sharded weights to a stage's actions. Without them it returns the actions
// unchanged. Pure.
//
// Weights are gathered in the order of use. Each action waits for its own weights. The gathers of
// the next `prefetch_layers` layers are already under way if their buffers are free. Weights stay
// gathered until another bucket needs their buffer, so the next use does not gather again. All are
// freed before the step, or before the first update, because updates change them. Persistent
// tensors are gathered once a step.
std::vector<Action> place_shard_gathers(std::vector<Action> actions,
                                        const ScheduleParameters& parameters, int64_t stage);

// The buckets of a stage, numbered from the last layers to the first, and the buckets that an
// action of a layer uses: the layer's own bucket, the embedding's for a layer that is tied to it,
// and the bucket of persistent tensors.
class LayerBuckets {
 public:
  LayerBuckets(const ScheduleParameters& parameters, int64_t stage);

  using Used = std::array<int32_t, 3>;         // -1: fewer
  Used weights(const Action& action) const;    // buckets whose weights must be gathered
  Used gradients(const Action& action) const;  // buckets that the action adds gradients to

  // -1: another stage's layer, or no own bucket.
  int32_t bucket_of(int64_t layer) const {
    const auto index = static_cast<size_t>(layer);
    return layer >= 0 && index < of_layer_.size() ? of_layer_[index] : -1;
  }
  int32_t table() const;                              // bucket of the token embedding
  int32_t persistent() const { return persistent_; }  // -1 = none

 private:
  Used used_by(int64_t layer, ActionKind kind) const;

  const ScheduleParameters& parameters_;
  std::vector<int32_t> of_layer_;  // by model index
  int32_t persistent_ = -1;
};

}  // namespace smp::schedule
