#pragma once

#include <vector>

#include "smp/plan/spec/job_spec.h"

namespace smp::framework {

// The schedules, sharding and settings that a framework offers. The search chooses no others for
// it.
//   Megatron-LM     arguments.py: virtual stages, sequence parallelism, distributed optimizer
//                   (ZeRO-1); no ZeRO-2 or 3 with its own pipelines, no zero-bubble
//   DeepSpeed       runtime/pipe: 1F1B; pipeline/engine.py: "ZeRO-2 and ZeRO-3 are
//                   incompatible with pipeline parallelism"; no sequence parallelism of Megatron's
//                   kind of its own
//   PyTorch FSDP    torch.distributed.pipelining has every schedule; FSDP shards gradients or
//                   parameters, or is replaced by DDP
//   SMP v1          pipeline: simple, interleaved; no context or expert degree
//   SMP v2          no pipeline; sharding is FSDP's
struct FrameworkSupport {
  std::vector<PipelineKind> schedules;
  std::vector<Sharding> shardings;
  bool sharded_pipelines = true;  // ZeRO-2 and 3 with stages
  bool sequence_parallel = true;
  bool context = true;
  bool experts = true;
  bool offload_activations = true;
  bool offload_optimizer = true;
  bool offload_parameters = true;
};

FrameworkSupport framework_support(Profile profile);

}  // namespace smp::framework
