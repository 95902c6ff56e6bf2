#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "smp/plan/spec/plan.h"

// The memory model: bytes of a rank as named terms, for a resolved plan. Pure; any thread.
//
// Model states come from the rank's layout, to the byte. Activations come from walking the stage's
// schedule action by action and adding and releasing what each layer call keeps, as the engine
// does; what a call keeps is memory_of() for our engine on CPUs, and the published formulas for
// accelerators. The peak is the largest of three phases: forward, backward, optimizer step.
namespace smp::memory {

// What one parameter costs while training, unsharded; the constants with Adam.
struct BytesPerParameter {
  int64_t weight = 0;         // what forward and backward compute with
  int64_t gradient = 0;       // what is accumulated
  int64_t gradient_copy = 0;  // a second one in fp32
  int64_t master = 0;         // fp32 weights beside 16-bit ones
  int64_t momentum = 0;
  int64_t variance = 0;

  constexpr int64_t optimizer() const { return master + momentum + variance; }
  constexpr int64_t total() const { return weight + gradient + gradient_copy + optimizer(); }
};
inline constexpr BytesPerParameter kAmpAdam{2, 2, 4, 4, 4, 4};  // fp16; SMP's and DeepSpeed's 20
inline constexpr BytesPerParameter kBf16{2, 4, 0, 4, 4, 4};     // ours and Megatron's bf16: 18
inline constexpr BytesPerParameter kFp32{4, 4, 0, 0, 4, 4};     // 16
inline constexpr BytesPerParameter kFp64{8, 8, 0, 0, 8, 8};     // 32, for parity runs

// Of a resolved job. Our engine on CPUs takes fp16 gradients as it takes bf16 ones: in fp32 alone.
BytesPerParameter bytes_per_parameter(const JobSpec& job);

// All ranks of a (stage, tensor) class, at their peak. busy_ns is left 0.
RankPrediction predict_memory(const Plan& plan, int64_t stage, int64_t tensor);
std::vector<RankPrediction> predict_memory(const Plan& plan);  // ordered by (stage, tensor)

// What a rank holds at most in one phase of a step: "forward", "backward", "step", "checkpoint".
struct PhasePeak {
  std::string phase;
  int64_t bytes = 0;
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

// Checkpointed layers whose inputs stay on the accelerator while the rest lie in host memory
// (SMP v2's activation_loading_horizon), and one more that is on its way.
inline constexpr int64_t kLoadingHorizonLayers = 2;

}  // namespace smp::memory
