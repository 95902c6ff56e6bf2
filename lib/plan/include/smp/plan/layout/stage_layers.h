#pragma once

#include <cstdint>
#include <vector>

#include "smp/plan/model/layers.h"
#include "smp/plan/schedule/schedule_shape.h"

namespace smp {
struct Plan;
}

namespace smp::layout {

// What a stage holds of the model: the embedding is in the first chunk of the model, the head (with
// what predicts further tokens) in the last one.
struct StageLayers {
  std::vector<model::LayerSpec> layers;  // chunk by chunk, in forward order
  std::vector<int64_t> chunk_layers;     // how many of them each chunk has (schedule.h)
};

// The shape by which chunks are dealt to stages: the order of passes does not matter there.
schedule::ScheduleShape chunks_of(const Plan& plan);

// Of every stage.
std::vector<StageLayers> layers_by_stage(const Plan& plan);

}  // namespace smp::layout
