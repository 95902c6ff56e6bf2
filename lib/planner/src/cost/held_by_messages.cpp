#include "cost/held_by_messages.h"

#include <algorithm>

#include "smp/plan/framework/framework_catalog.h"
#include "smp/planner/cost/layer_seconds.h"

namespace smp::cost {
namespace {

// Share of a block's time that its kernels take, from which on the processor is ahead: fitted on
// nanotron's sweep, where tensors are held by the blocks that compute and by no others.
constexpr double kAheadFrom = 0.7;

}  // namespace

double held_by_messages(const JobSpec& job, const choice::LayoutChoice& choice,
                        const model::LayerSpec& block, double whole) {
  const double tensors = framework::framework_model(job).held_by_messages;
  if (tensors == 0 || choice.tensor == 1 || !choice.sequence_parallel) return 0;
  const CallSeconds call = call_seconds(job, choice, block, false);
  const double waiting = call.launch_forward + call.launch_backward;
  const double all = call.forward() + call.backward() - call.recompute;
  const double running = all > 0 ? 1 - waiting / all : 0;
  return tensors * std::max(0.0, (running - kAheadFrom) / (1 - kAheadFrom)) * whole;
}

}  // namespace smp::cost
