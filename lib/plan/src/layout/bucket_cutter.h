#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "smp/plan/layout/stage_buckets.h"
#include "smp/plan/model/layers.h"

namespace smp {
struct Plan;
}

namespace smp::layout {

// Cuts the flat buffers of a plan's ranks with this place in their tensor groups, stage by stage.
// One thread.
class BucketCutter {
 public:
  BucketCutter(const Plan& plan, int64_t tensor_rank) : plan_(plan), tensor_rank_(tensor_rank) {}
  StageBuckets cut(StageLayers stage);

 private:
  // Of a layer's tensors.
  struct Elements {
    bool opens_with_persistent = false;
    int64_t persistent = 0;
    int64_t others = 0;           // without `experts`
    int64_t experts = 0;          // where ranks share them
    int64_t others_of_first = 0;  // on the first tensor rank, with experts
  };
  Elements elements_of(const model::LayerSpec& layer);
  std::vector<std::pair<size_t, size_t>> ranges_of(const StageLayers& stage);
  void place(const std::vector<std::pair<size_t, size_t>>& ranges, StageBuckets& cut);
  void place_experts(const std::vector<std::pair<size_t, size_t>>& ranges, StageBuckets& cut);
  void place_parts(StageBuckets& cut) const;
  void share_buffers(const std::vector<std::pair<size_t, size_t>>& ranges, StageBuckets& cut) const;

  const Plan& plan_;
  const int64_t tensor_rank_;
  std::vector<std::pair<model::LayerSpec, Elements>> known_;  // one of all layers that are alike
};

// The part of a parameter that a rank of these places holds. Ranks that share experts hold the same
// number of whole experts.
model::Box box_of(const Plan& plan, const model::ParameterSpec& parameter, int64_t tensor_rank,
                  int64_t expert_part);
// Whether ranks share the experts, and the parameter is of them.
bool is_of_shared_experts(const Plan& plan, const model::ParameterSpec& parameter);

// Which of a layer's tensors persist.
std::vector<bool> persistent_of(const Plan& plan, const std::vector<model::ParameterSpec>& tensors);

}  // namespace smp::layout
