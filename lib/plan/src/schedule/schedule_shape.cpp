#include "smp/plan/schedule/schedule_shape.h"

#include <algorithm>

namespace smp::schedule {
namespace {

std::string digits(int64_t value) { return std::to_string(value); }

std::optional<std::string> virtual_refused(const ScheduleShape& shape) {
  const int64_t p = shape.stages;
  const int64_t v = shape.virtual_stages;
  if (v < 2) {
    return "virtual stages are chunks of layers, 2 or more a stage, not " + digits(v) +
           ": with one the schedule is interleaved";
  }
  if (shape.microbatches % p != 0) {
    return "virtual stages take microbatches in groups of p: microbatches % p = " +
           digits(shape.microbatches) + " % " + digits(p) + " = " + digits(shape.microbatches % p) +
           ", which must be 0";
  }
  // A group's first microbatch must have passed all chunks before any comes back.
  const int64_t least = ((v - 1) * p + 1 + v - 1) / v;
  if (shape.most_live() < least) {
    return "virtual stages hold a group of p microbatches in v - 1 chunks and one more: "
           "active_microbatches must be at least ((v - 1) p + 1) / v = ((" +
           digits(v) + " - 1) x " + digits(p) + " + 1) / " + digits(v) + ", " + digits(least) +
           " rounded up, not " + digits(shape.active_microbatches);
  }
  return std::nullopt;
}

std::optional<std::string> zb_v_refused(const ScheduleShape& shape) {
  const int64_t least = std::min(shape.stages, shape.microbatches);
  if (shape.most_live() >= least) return std::nullopt;
  return "zb_v holds min(p, microbatches) microbatches on each stage: active_microbatches must be "
         "at least min(" +
         digits(shape.stages) + ", " + digits(shape.microbatches) + ") = " + digits(least) +
         ", not " + digits(shape.active_microbatches);
}

}  // namespace

std::optional<std::string> schedule_refused(const ScheduleShape& shape) {
  if (shape.kind == PipelineKind::kVirtual) return virtual_refused(shape);
  if (shape.kind == PipelineKind::kZbV) return zb_v_refused(shape);
  return std::nullopt;
}

bool forwards_come_first(const ScheduleShape& shape) {
  return shape.microbatches == 1 ||
         (shape.kind == PipelineKind::kSimple && shape.most_live() >= shape.microbatches);
}

ChunkPlace place_of_chunk(const ScheduleShape& shape, int64_t position) {
  const int64_t p = shape.stages;
  if (shape.kind == PipelineKind::kZbV && position >= p) return {2 * p - 1 - position, 1};
  return {position % p, position / p};
}

}  // namespace smp::schedule
