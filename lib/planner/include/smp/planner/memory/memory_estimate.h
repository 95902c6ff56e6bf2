#pragma once

#include <array>
#include <cstdint>

#include "smp/plan/spec/job_spec.h"
#include "smp/planner/choice/layout_choice.h"
#include "smp/planner/cost/layer_bytes.h"
#include "smp/planner/memory/terms.h"

// The memory of a layout in closed form: states by sharding, activations by the microbatches that
// the schedule holds in flight. Takes about a microsecond; used by search, score and solve. The
// chosen plan is priced again by walking its schedule (memory_model.h). Tests compare the two.
// Pure; any thread.
namespace smp::memory {

enum class PeakPhase { kForward, kBackward, kStep, kCheckpoint };
std::string_view name_of(PeakPhase phase);  // "forward", "backward", "step", "checkpoint"

struct MemoryEstimate {
  std::array<double, kTerms> bytes{};  // at the peak
  double peak_bytes = 0;               // their sum: what the device must have
  // As PyTorch counts: what its allocator handed out, and what it took from the device.
  double allocated_bytes = 0;  // without context, communicators, fragmentation
  double reserved_bytes = 0;   // allocated + fragmentation
  double host_bytes = 0;       // of the host's memory, for what is offloaded and GPUs' messages
  PeakPhase phase = PeakPhase::kBackward;
  int32_t stage = 0;

  double operator[](Term term) const { return bytes[static_cast<size_t>(term)]; }
};

// Of every rank of `stage`.
MemoryEstimate estimate_memory(const JobSpec& job, const choice::LayoutChoice& choice,
                               const cost::LayerBytes& layers, int64_t stage);
// Of the fullest stage.
MemoryEstimate estimate_memory(const JobSpec& job, const choice::LayoutChoice& choice,
                               const cost::LayerBytes& layers);

// Microbatches (of a whole stage's layers, so a fraction with virtual stages) that `stage` holds at
// most. Equal to what walking lib/plan's schedule gives; a test compares them.
double microbatches_in_flight(const choice::LayoutChoice& choice, int64_t stage);

}  // namespace smp::memory
