#include <algorithm>
#include <cstdint>

#include "smp/plan/base/check.h"
#include "smp/planner/memory/memory_estimate.h"

// How much work a stage holds at most, in closed form. A unit is a microbatch in one chunk of
// layers; it is held from its forward until its weight gradient (which the kinds that do not split
// the backward pass compute in it).
namespace smp::memory {
namespace {

// Megatron-LM, schedules.py: a stage runs 2(p - i - 1) + (v - 1)g forwards before its first
// backward, and one more whenever it runs a forward first. Microbatches take turns in groups of
// g = p; where p does not divide them the group must be a larger one that does
// (--microbatch-group-size-per-virtual-pipeline-stage).
int64_t units_of_virtual(int64_t p, int64_t v, int64_t m, int64_t stage) {
  int64_t group = p;
  if (v > 1 && m > p) {
    while (m % group != 0) ++group;
  }
  return std::min(m * v, 2 * (p - stage - 1) + (v - 1) * group + 1);
}

// lib/plan's ZB-V order: stage i begins with 2(p - i) - 1 microbatches in its first chunk, lets one
// more in for each of the i that come back in its second chunk, and holds one of those while it
// turns the first of them round.
int64_t units_of_zb_v(int64_t p, int64_t m, int64_t stage) {
  return std::min(m, 2 * p - stage - 1) + std::min(m, stage + 1);
}

}  // namespace

double microbatches_in_flight(const choice::LayoutChoice& choice, int64_t stage) {
  const int64_t p = choice.pipeline;
  const int64_t m = choice.microbatches;
  const int64_t v = choice.virtual_stages;
  const int64_t cap = choice.active_microbatches > 0 ? choice.active_microbatches : m;
  switch (choice.schedule) {
    case PipelineKind::kSimple: return static_cast<double>(std::min(m, cap));
    case PipelineKind::kInterleaved: return static_cast<double>(std::min({m, p - stage, cap}));
    case PipelineKind::kVirtual:
      return static_cast<double>(std::min(units_of_virtual(p, v, m, stage), cap * v)) /
             static_cast<double>(v);
    // 1F1B's on its first stage: the others use what they would have to spare to put weight
    // gradients off (Qi et al. 2023, section 2.1).
    case PipelineKind::kZbH1: return static_cast<double>(std::min({m, p, cap}));
    case PipelineKind::kZbV:
      return static_cast<double>(std::min(units_of_zb_v(p, m, stage), cap * 2)) / 2.0;
  }
  check_failed(__FILE__, __LINE__, "unknown schedule");
}

}  // namespace smp::memory
