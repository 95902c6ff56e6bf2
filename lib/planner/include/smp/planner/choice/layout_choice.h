#pragma once

#include <cstdint>
#include <string_view>

#include "smp/plan/spec/job_spec.h"

namespace smp::choice {

// A LayoutChoice is one complete layout of a job: everything that the search decides, as numbers.
// Plain data without allocations: a search prices millions of them. world = pipeline x tensor x
// context x shard x replica; experts are spread over `expert` ranks of tensor x context x data.
struct LayoutChoice {
  int32_t pipeline = 1;
  int32_t tensor = 1;
  int32_t context = 1;
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
  // Stages lie apart and data-parallel peers side by side, behind their tensor and context peers:
  // "PDT", or of one rank a layer "spread" (TPD). Where the job asks for TPD, as that says.
  bool spread_placement = false;
  int32_t micro_batch = 1;
  int32_t microbatches = 1;
  int32_t active_microbatches = 0;  // 0 = the schedule's own count
  // Blocks of the first and of the last stage; 0 = floor(L/p) + [i < L mod p]. The others share
  // the rest as evenly as possible.
  int32_t first_stage_layers = 0;
  int32_t last_stage_layers = 0;

  int64_t data() const { return int64_t{shard} * replica; }
  int64_t world() const { return data() * pipeline * tensor * context; }
  bool operator==(const LayoutChoice&) const = default;
};

// Whether a placement_strategy is one that `spread_placement` says.
bool is_spread(std::string_view placement);

// Blocks of stage `stage` under the choice (of `layers` in all).
int64_t stage_layers(const LayoutChoice& choice, int64_t layers, int64_t stage);

}  // namespace smp::choice
