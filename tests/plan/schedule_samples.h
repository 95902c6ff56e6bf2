#pragma once

#include <string>
#include <vector>

#include "smp/plan/schedule/schedule.h"
#include "smp/plan/spec/bucket_size.h"

// Schedules of models that are cut evenly, for tests.
namespace smp {

struct SampleSchedule {
  int64_t stages = 1;
  int64_t microbatches = 1;
  PipelineKind kind = PipelineKind::kInterleaved;
  int64_t active_microbatches = 0;
  int64_t blocks_per_stage = 1;
  bool buckets = false;  // one for each layer
  bool sharded = false;
  bool early_updates = false;
  bool tied = false;
  bool kv_replicated = false;
  int64_t virtual_stages = 1;
  // Buckets' buffers in turn, of gradients two; 0 = whole.
  bool sharded_gradients = false;
  int64_t weight_buffers = 0;
  bool replicas = false;  // of the shards
  int64_t most_reductions = kMostReductions;
  int64_t most_gathers = 0;
  bool router_loads = false;
  bool persistent = false;  // one bucket more, of tensors that persist, the token table among them
};

inline schedule::ScheduleParameters sample_parameters(const SampleSchedule& sample) {
  schedule::ScheduleParameters parameters;
  parameters.shape = {sample.kind, sample.stages, sample.virtual_stages, sample.microbatches,
                      sample.active_microbatches};
  parameters.sharded = sample.sharded;
  parameters.early_updates = sample.early_updates;
  parameters.tied_across_stages = sample.tied;
  parameters.kv_replicated = sample.kv_replicated;
  parameters.sums_router_loads = sample.router_loads;
  const schedule::ScheduleShape& shape = parameters.shape;
  const int64_t positions = shape.stages * shape.chunks();
  const auto stages = static_cast<size_t>(shape.stages);
  parameters.layers.assign(stages, {static_cast<size_t>(shape.chunks()), std::vector<int64_t>{}});
  parameters.bucket_first_layers.resize(stages);
  int64_t layer = 0;
  for (int64_t position = 0; position < positions; ++position) {
    const schedule::ChunkPlace place = schedule::place_of_chunk(shape, position);
    const int64_t ends = (position == 0 ? 1 : 0) + (position + 1 == positions ? 1 : 0);
    std::vector<int64_t>& layers =
        parameters.layers[static_cast<size_t>(place.stage)][static_cast<size_t>(place.chunk)];
    for (int64_t i = 0; i < sample.blocks_per_stage + ends; ++i) layers.push_back(layer++);
  }
  parameters.head_layer = layer - 1;
  for (size_t stage = 0; sample.buckets && stage < stages; ++stage) {
    std::vector<int64_t>& buckets = parameters.bucket_first_layers[stage];
    for (const auto& layers : parameters.layers[stage]) {
      buckets.insert(buckets.begin(), layers.rbegin(), layers.rend());
    }
  }
  parameters.bucket_last_layers = parameters.bucket_first_layers;
  parameters.has_replicas = sample.replicas;
  parameters.most_reductions = sample.most_reductions;
  parameters.most_gathers = sample.most_gathers;
  const auto in_turn = [&](int64_t count) {
    std::vector<std::vector<int32_t>> buffers(stages);
    for (size_t stage = 0; stage < stages; ++stage) {
      for (size_t b = 0; b < parameters.bucket_first_layers[stage].size(); ++b) {
        buffers[stage].push_back(static_cast<int32_t>(static_cast<int64_t>(b) % count));
      }
    }
    return buffers;
  };
  if (sample.sharded_gradients) parameters.gradient_buffers = in_turn(2);
  if (sample.weight_buffers > 0) parameters.weight_buffers = in_turn(sample.weight_buffers);
  parameters.prefetch_layers = sample.weight_buffers - 1;
  parameters.table_persists = sample.persistent;
  for (size_t stage = 0; sample.persistent && stage < stages; ++stage) {
    std::vector<int64_t>& buckets = parameters.bucket_first_layers[stage];
    parameters.persistent_buckets.push_back(static_cast<int32_t>(buckets.size()));
    buckets.push_back(parameters.layers[stage].front().front());
    parameters.bucket_last_layers[stage].push_back(parameters.layers[stage].back().back());
    parameters.gradient_buffers[stage].push_back(2);
    parameters.weight_buffers[stage].push_back(static_cast<int32_t>(sample.weight_buffers));
  }
  for (const std::vector<int64_t>& buckets : parameters.bucket_first_layers) {
    parameters.bucket_elements.emplace_back(buckets.size(), 1);
  }
  return parameters;
}

inline std::vector<std::string> listing(const schedule::Schedule& schedule, int64_t stage) {
  std::vector<std::string> lines;
  for (const schedule::Action& action : schedule.actions[static_cast<size_t>(stage)]) {
    lines.push_back(schedule::to_string(action));
  }
  return lines;
}

}  // namespace smp
