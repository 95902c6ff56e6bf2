#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "smp/plan/mesh/mesh.h"
#include "smp/plan/spec/job_spec.h"

namespace smp {

inline constexpr int kPlanFormatVersion = 2;

// The categories of a rank's memory.
enum class MemoryCategory {
  kWeights,
  kGradients,
  kOptimizer,
  kActivations,    // kept from forward to backward
  kWorkspace,      // temporaries of a layer, of the loss, of the optimizer step
  kCommunication,  // receive buffers, shared segments
  kData,           // batches
};
inline constexpr int kMemoryCategories = 7;
std::string_view name_of(MemoryCategory category);  // "weights", "gradients", ...

// One named term of the memory model, in bytes of one rank.
struct MemoryTerm {
  std::string name;  // e.g. "fp32 master weights"
  MemoryCategory category = MemoryCategory::kWeights;
  int64_t bytes = 0;
  std::string formula;  // with its values, e.g. "4 B x 1,234,567 / 8"
  std::string source;   // where the formula comes from
};

// All ranks with the same stage and tensor coordinate hold the same bytes.
struct RankPrediction {
  int64_t stage = 0;
  int64_t tensor = 0;
  int64_t peak_bytes = 0;
  std::string peak_phase;         // "forward", "backward", "step"
  std::vector<MemoryTerm> terms;  // at the peak; they sum to peak_bytes
  int64_t host_bytes = 0;         // host memory: what is offloaded, GPUs' messages
  int64_t busy_ns = 0;            // computing in one step; the rest of step_ns is idle
};

struct Predictions {
  std::vector<RankPrediction> ranks;  // ordered by (stage, tensor)
  int64_t step_ns = 0;
  int64_t tokens_per_step = 0;
  int64_t bubble_ppm = 0;  // idle share of the pipeline, parts per million
};

// A Plan is the fully resolved configuration, in which every optional of the job is set, with its
// predictions. smp-plan writes it, everything else reads it. Plain data.
struct Plan {
  JobSpec job;
  mesh::Degrees
      degrees;  // pipeline, tensor, shard (z), replica; from job.parallel and the world size
  std::vector<std::string> reasons;  // why this layout: one line each, for people
  Predictions predictions;
};

// Sets the open values that have a neutral choice: context, expert and virtual degrees of 1 (of
// zb_v: 2), no sequence parallelism, no offload, recompute as activation_checkpointing says,
// framework smp. For plans that are made without a planner.
void close_plain_keys(JobSpec& job);

// Whether ranks that share experts run our engine's program of them, in which rows travel: of other
// frameworks, and on GPUs, they are priced by habits.
bool exchanges_rows(const JobSpec& job);
// expert_tensor_degree where no key says it: 1 in our engine on CPUs with e > 1, else t.
int64_t default_expert_tensor(const JobSpec& job, int64_t expert, int64_t tensor);

// Element type of weights and activations.
DType compute_dtype(const Plan& plan);

}  // namespace smp
