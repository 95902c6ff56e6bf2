#include "smp/plan/schedule/schedule_parameters.h"

namespace smp::schedule {

int64_t checkpoint_of(const ScheduleParameters& parameters, int64_t layer) {
  return parameters.checkpoints.empty() ? -1
                                        : parameters.checkpoints.at(static_cast<size_t>(layer));
}

bool is_offloaded(const ScheduleParameters& parameters, int64_t layer) {
  if (parameters.offloaded.empty() || !parameters.offloaded.at(static_cast<size_t>(layer))) {
    return false;
  }
  const int64_t checkpoint = checkpoint_of(parameters, layer);
  return checkpoint < 0 || checkpoint == layer;
}

}  // namespace smp::schedule
