#include "framework/framework_support.h"

namespace smp::framework {

FrameworkSupport framework_support(Profile profile) {
  using P = PipelineKind;
  using S = Sharding;
  const std::vector<P> every = {P::kInterleaved, P::kVirtual, P::kZbH1, P::kZbV, P::kSimple};
  const std::vector<S> all = {S::kNone, S::kOptimizerState, S::kGradients, S::kParameters};
  FrameworkSupport support{every, all};
  switch (profile) {
    case Profile::kSmp: break;
    case Profile::kMegatron:
      support.schedules = {P::kInterleaved, P::kVirtual};
      support.shardings = {S::kNone, S::kOptimizerState};
      support.offload_activations = support.offload_parameters = false;
      break;
    case Profile::kDeepSpeed:
      support.schedules = {P::kInterleaved};
      support.sharded_pipelines = support.sequence_parallel = support.context = false;
      break;
    case Profile::kInternEvo:
      support.schedules = {P::kInterleaved, P::kVirtual};
      support.offload_activations = support.offload_parameters = false;
      break;
    case Profile::kFsdp:
      support.shardings = {S::kNone, S::kGradients, S::kParameters};
      support.offload_optimizer = false;
      break;
    case Profile::kSmpV1:
      support.schedules = {P::kInterleaved, P::kSimple};
      support.sequence_parallel = support.context = support.experts = false;
      support.offload_optimizer = support.offload_parameters = false;
      break;
    case Profile::kSmpV2:
      support.schedules = {};
      support.shardings = {S::kNone, S::kParameters};
      support.sequence_parallel = false;
      support.offload_optimizer = support.offload_parameters = false;
      break;
  }
  return support;
}

}  // namespace smp::framework
