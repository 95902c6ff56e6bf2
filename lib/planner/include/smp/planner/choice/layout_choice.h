#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "smp/plan/schedule/schedule_shape.h"
#include "smp/plan/spec/job_spec.h"

namespace smp::choice {

// The order of the mesh axes over ranks, as parallel.placement_strategy names it: the right-most
// letter varies fastest (mesh.h). Cluster is DPT, spread is TPD.
enum class PlacementStrategy : uint8_t { kCluster, kSpread, kDPT, kDTP, kPDT, kPTD, kTDP, kTPD };
std::string_view name_of(PlacementStrategy strategy);
// Throws ConfigError for another name.
PlacementStrategy placement_strategy_of(std::string_view name);

// Whether stages lie apart and data-parallel peers side by side: spread, TPD, PDT.
bool is_spread(PlacementStrategy strategy);

// Blocks of each stage, or of each chunk in the order of the model, one by one. Empty where the
// numbers of a LayoutChoice say them. Immutable; copies share one list, because a search copies
// millions of choices.
class BlockPartition {
 public:
  BlockPartition() = default;
  explicit BlockPartition(std::vector<int64_t> blocks)
      : blocks_(std::make_shared<const std::vector<int64_t>>(std::move(blocks))) {}

  bool empty() const { return blocks_ == nullptr; }
  const std::vector<int64_t>& blocks() const { return *blocks_; }  // not of an empty one
  bool operator==(const BlockPartition& other) const {
    return blocks_ == other.blocks_ || (blocks_ && other.blocks_ && *blocks_ == *other.blocks_);
  }

 private:
  std::shared_ptr<const std::vector<int64_t>> blocks_;
};

// A LayoutChoice is one complete layout of a job: everything that the search decides, as numbers.
// A search prices millions of them, so it allocates nothing for the partitions that a search makes.
// world = pipeline x tensor x context x shard x replica; experts are spread over `expert` ranks of
// tensor x context x data.
struct LayoutChoice {
  int32_t pipeline = 1;
  int32_t tensor = 1;
  int32_t context = 1;
  int32_t exchange = 1;  // of the context ranks, those that exchange heads
  int32_t expert = 1;
  int32_t expert_tensor = 1;
  int32_t shard = 1;           // z
  int32_t replica = 1;         // r
  int32_t virtual_stages = 1;  // chunks of layers that a rank holds: 2 in zb_v
  PipelineKind schedule = PipelineKind::kInterleaved;
  Sharding sharding = Sharding::kNone;
  Precision precision = Precision::kBf16;
  Recompute recompute = Recompute::kNone;
  int32_t recompute_layers = -1;  // of each stage; -1 = all
  bool sequence_parallel = false;
  bool offload_activations = false;
  bool offload_optimizer = false;
  bool offload_parameters = false;
  PlacementStrategy placement = PlacementStrategy::kCluster;
  int32_t micro_batch = 1;
  int32_t microbatches = 1;
  int32_t active_microbatches = 0;  // 0 = the schedule's own count
  // Blocks of the first and of the last stage; 0 = floor(L/p) + [i < L mod p]. The others share
  // the rest as evenly as possible.
  int32_t first_stage_layers = 0;
  int32_t last_stage_layers = 0;
  BlockPartition partition = {};  // one that these two cannot say; they are 0 then

  int64_t data() const { return int64_t{shard} * replica; }
  int64_t world() const { return data() * pipeline * tensor * context; }
  // Whether all stages have as many blocks, but for the remainder of the division.
  bool has_even_stages() const {
    return first_stage_layers == 0 && last_stage_layers == 0 && partition.empty();
  }
  bool operator==(const LayoutChoice&) const = default;
};

schedule::ScheduleShape shape_of(const LayoutChoice& choice);

// Blocks of stage `stage` under the choice (of `layers` in all).
int64_t stage_layers(const LayoutChoice& choice, int64_t layers, int64_t stage);

}  // namespace smp::choice
