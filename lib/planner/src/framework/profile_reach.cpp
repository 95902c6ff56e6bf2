#include "framework/profile_reach.h"

namespace smp::framework {

Reach reach_of(Profile profile) {
  using P = PipelineKind;
  using S = Sharding;
  const std::vector<P> every = {P::kInterleaved, P::kVirtual, P::kZbH1, P::kZbV, P::kSimple};
  const std::vector<S> all = {S::kNone, S::kOptimizerState, S::kGradients, S::kParameters};
  Reach reach{every, all};
  switch (profile) {
    case Profile::kSmp: break;
    case Profile::kMegatron:
      reach.schedules = {P::kInterleaved, P::kVirtual};
      reach.shardings = {S::kNone, S::kOptimizerState};
      reach.offload_activations = reach.offload_parameters = false;
      break;
    case Profile::kDeepSpeed:
      reach.schedules = {P::kInterleaved};
      reach.sharded_pipelines = reach.sequence_parallel = reach.context = false;
      break;
    case Profile::kInternEvo:
      reach.schedules = {P::kInterleaved, P::kVirtual};
      reach.offload_activations = reach.offload_parameters = false;
      break;
    case Profile::kFsdp:
      reach.shardings = {S::kNone, S::kGradients, S::kParameters};
      reach.offload_optimizer = false;
      break;
    case Profile::kSmpV1:
      reach.schedules = {P::kInterleaved, P::kSimple};
      reach.sequence_parallel = reach.context = reach.experts = false;
      reach.offload_optimizer = reach.offload_parameters = false;
      break;
    case Profile::kSmpV2:
      reach.schedules = {};
      reach.shardings = {S::kNone, S::kParameters};
      reach.sequence_parallel = false;
      reach.offload_optimizer = reach.offload_parameters = false;
      break;
  }
  return reach;
}

}  // namespace smp::framework
