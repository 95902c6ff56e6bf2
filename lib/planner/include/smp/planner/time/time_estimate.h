#pragma once

#include <array>
#include <string_view>

#include "smp/plan/spec/job_spec.h"
#include "smp/planner/choice/layout_choice.h"
#include "smp/planner/cost/layer_bytes.h"
#include "smp/planner/cost/layer_seconds.h"

// The step time of a layout in closed form. Takes about a microsecond; used by search, score and
// solve. The chosen plan is priced again by simulating its schedule (time_model.h). Tests compare
// the two. Pure; any thread.
namespace smp::time {

// Where the time of a step goes, on the busiest stage; they sum to step_s.
enum class TimePart {
  kMatmul,
  kMemoryBound,  // norms, activations, dropout, softmax, the loss
  kLaunch,       // kernels too short to hide their launch
  kRecompute,
  kTensor,     // messages of tensor and sequence parallelism
  kContext,    // of context parallelism
  kExpert,     // dispatch and combine
  kPipeline,   // messages between stages that nothing hides
  kSharding,   // gathers and reduce-scatters that computing does not hide
  kReplica,    // reductions over data-parallel peers that computing does not hide
  kOffload,    // transfers that computing does not hide
  kBubble,     // waiting for other stages
  kOptimizer,  // the step itself
};
inline constexpr int kTimeParts = 13;
std::string_view name_of(TimePart part);

struct TimeEstimate {
  std::array<double, kTimeParts> seconds{};
  double step_s = 0;
  double bubble_share = 0;    // of the pipeline's time
  double least_bubble_s = 0;  // no schedule of the layout's kind waits less
  double model_flops = 0;     // of one step over all ranks, without recompute

  double operator[](TimePart part) const { return seconds[static_cast<size_t>(part)]; }
};

TimeEstimate estimate_time(const JobSpec& job, const choice::LayoutChoice& choice,
                           const cost::LayerBytes& bytes, const cost::LayerSeconds& layers);

}  // namespace smp::time
