#pragma once

#include <cstdint>

#include "smp/plan/spec/job_spec.h"
#include "smp/planner/choice/layout_choice.h"
#include "smp/planner/cost/call_bytes.h"

namespace smp::program {
struct LayerMemory;
}

namespace smp::cost {

// One call of a layer; `is_frozen`: it is one of the first blocks, which training.frozen names.
CallBytes call_bytes(const JobSpec& job, const choice::LayoutChoice& choice,
                     const model::LayerSpec& layer, bool is_frozen);
// The same from the life of the values of the layer's program.
CallBytes call_bytes(const JobSpec& job, const choice::LayoutChoice& choice,
                     const model::LayerSpec& layer, bool is_frozen,
                     const program::LayerMemory& memory);

// The bytes and parameters of a job's layers. Depends on few of a choice's numbers (layer_key), so
// that a search computes it seldom. Pure; any thread.
LayerBytes layer_bytes(const JobSpec& job, const choice::LayoutChoice& choice);

// Choices with equal keys have equal LayerBytes and LayerSeconds in one job.
struct LayerKey {
  uint64_t layout = 0;
  // Microbatches between two casts of a weight, recompute, a pipeline that crosses hosts.
  uint64_t step = 0;
  bool operator==(const LayerKey&) const = default;
};
LayerKey layer_key(const JobSpec& job, const choice::LayoutChoice& choice);

}  // namespace smp::cost
