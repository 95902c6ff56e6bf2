#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "smp/plan/spec/plan.h"
#include "smp/planner/memory/bytes_per_parameter.h"

// The memory model: bytes of a rank as named terms, for a resolved plan. Pure; any thread.
//
// Model states come from the rank's layout, to the byte. Activations come from walking the stage's
// schedule action by action and adding and releasing what each layer call keeps, as the engine
// does; what a call keeps is memory_of() for our engine on CPUs, and the published formulas for
// accelerators. The peak is the largest of three phases: forward, backward, optimizer step.
namespace smp::memory {

// All ranks of a (stage, tensor) class, at their peak. busy_ns is left 0.
RankPrediction predict_memory(const Plan& plan, int64_t stage, int64_t tensor);
std::vector<RankPrediction> predict_memory(const Plan& plan);  // ordered by (stage, tensor)

// What a rank holds at most in one phase of a step: "forward", "backward", "step", "checkpoint".
struct PhasePeak {
  std::string phase;
  int64_t bytes = 0;
  std::vector<MemoryTerm> terms;  // they sum to `bytes`; on accelerators without their formulas
};

// The same of one plan, whose schedule is made once and walked once for ranks that are alike. The
// plan must outlive it.
class MemoryModel {
 public:
  explicit MemoryModel(const Plan& plan);
  ~MemoryModel();
  RankPrediction predict(int64_t stage, int64_t tensor);
  std::vector<PhasePeak> phases(int64_t stage, int64_t tensor);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// What a rank may use: the process's memory without what the platform itself takes; the largest
// number where no limit is given.
int64_t allowed_bytes(const ClusterSpec& cluster);

}  // namespace smp::memory
