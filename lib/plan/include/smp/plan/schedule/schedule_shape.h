#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "smp/plan/spec/job_spec.h"

namespace smp::schedule {

// The numbers on which the order of passes depends.
struct ScheduleShape {
  PipelineKind kind = PipelineKind::kInterleaved;
  int64_t stages = 1;
  int64_t virtual_stages = 1;  // of kVirtual
  int64_t microbatches = 1;
  int64_t active_microbatches = 0;  // cap on live microbatches; 0 = the schedule's own count
  bool forward_only = false;        // evaluation: no backward, no step

  int64_t chunks() const {  // of a stage
    return kind == PipelineKind::kVirtual ? virtual_stages : kind == PipelineKind::kZbV ? 2 : 1;
  }
  int64_t most_live() const {  // microbatches; by the cap alone
    return active_microbatches > 0 ? active_microbatches : microbatches;
  }
};

// The reason, with its numbers, why the schedule does not exist; nothing if it exists.
std::optional<std::string> schedule_refused(const ScheduleShape& shape);

// Whether all forwards of a step come before its first backward on every stage.
bool forwards_come_first(const ScheduleShape& shape);

// Whether weight gradients are actions of their own (kWeight).
constexpr bool defers_weight_gradients(PipelineKind kind) {
  return kind == PipelineKind::kZbH1 || kind == PipelineKind::kZbV;
}

// The place of a chunk in the order of the model: position 0 has the embedding, the last position
// the head. Consecutive chunks are on consecutive stages, cyclically; with kZbV they go down the
// stages and back up.
struct ChunkPlace {
  int64_t stage = 0;
  int64_t chunk = 0;
  bool operator==(const ChunkPlace&) const = default;
};
ChunkPlace place_of_chunk(const ScheduleShape& shape, int64_t position);
inline int64_t position_of_chunk(const ScheduleShape& shape, const ChunkPlace& place) {
  const int64_t p = shape.stages;
  if (shape.kind == PipelineKind::kZbV && place.chunk == 1) return 2 * p - 1 - place.stage;
  return place.chunk * p + place.stage;
}

}  // namespace smp::schedule
