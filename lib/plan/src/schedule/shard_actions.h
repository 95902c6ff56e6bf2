#pragma once

#include <array>
#include <vector>

#include "smp/plan/schedule/action.h"
#include "smp/plan/schedule/schedule_parameters.h"

namespace smp::schedule {

// Completes a stage's actions where weights or gradients are sharded; else returns them as they
// are. Pure.
//
// Weights are gathered in the order of use: before an action its own are waited for, and those of
// the next `prefetch_layers` layers are on their way where their buffers are free. They stay
// gathered until their buffer is wanted for others, so what is used next is not gathered again, and
// are freed at the latest before the step or the first update, which changes them: those that
// persist are gathered once. Gradients'
// reductions are waited for when their buffer is to be filled again, and before the step.
std::vector<Action> place_shard_actions(std::vector<Action> actions,
                                        const ScheduleParameters& parameters, int64_t stage);

// Buckets of a stage, numbered from the last layers to the first, and those whose weights or whose
// gradients a layer's action works on: the layer's own, the embedding's with a tied head, and that
// of small tensors that persist.
class LayerBuckets {
 public:
  LayerBuckets(const ScheduleParameters& parameters, int64_t stage);

  using Used = std::array<int32_t, 3>;         // -1: fewer
  Used weights(const Action& action) const;    // that must be whole
  Used gradients(const Action& action) const;  // that are added to

  int32_t bucket_of(int64_t layer) const;  // -1: of another stage, or it has none of its own
  int32_t table() const;                   // that of the token embedding
  int32_t persistent() const { return persistent_; }  // -1: there is none

 private:
  Used used_by(int64_t layer) const;

  const ScheduleParameters& parameters_;
  std::vector<int32_t> of_layer_;  // by model index
  int32_t persistent_ = -1;
  bool has_tied_head_ = false;
};

}  // namespace smp::schedule
