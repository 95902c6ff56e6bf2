#pragma once

#include <string>
#include <vector>

#include "smp/plan/schedule.h"

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
  bool tied = false;
  bool kv_replicated = false;
};

inline ScheduleParameters sample_parameters(const SampleSchedule& sample) {
  ScheduleParameters parameters;
  parameters.kind = sample.kind;
  parameters.microbatches = sample.microbatches;
  parameters.active_microbatches = sample.active_microbatches;
  parameters.sharded = sample.sharded;
  parameters.tied_across_stages = sample.tied;
  parameters.kv_replicated = sample.kv_replicated;
  int64_t layer = 0;
  for (int64_t stage = 0; stage < sample.stages; ++stage) {
    const int64_t ends = (stage == 0 ? 1 : 0) + (stage + 1 == sample.stages ? 1 : 0);
    std::vector<int64_t>& layers = parameters.layers.emplace_back();
    std::vector<int64_t>& buckets = parameters.bucket_first_layers.emplace_back();
    for (int64_t i = 0; i < sample.blocks_per_stage + ends; ++i) layers.push_back(layer++);
    if (sample.buckets) buckets.assign(layers.rbegin(), layers.rend());
  }
  return parameters;
}

inline std::vector<std::string> listing(const Schedule& schedule, int64_t stage) {
  std::vector<std::string> lines;
  for (const Action& action : schedule.actions[static_cast<size_t>(stage)]) {
    lines.push_back(to_string(action));
  }
  return lines;
}

}  // namespace smp
