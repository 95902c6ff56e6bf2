#include "cost/engine_bytes.h"

#include "smp/plan/base/dtype.h"
#include "smp/plan/model/layers.h"
#include "smp/plan/model/model_family.h"
#include "smp/plan/model/operators.h"
#include "smp/plan/program/liveness.h"

namespace smp::cost {

DType engine_dtype(Precision precision) {
  switch (precision) {
    case Precision::kFp32: return DType::kF32;
    case Precision::kFp64: return DType::kF64;
    case Precision::kBf16:
    case Precision::kFp8:
    case Precision::kNvfp4: return DType::kBF16;
    case Precision::kFp16: return DType::kF16;
  }
  return DType::kF32;
}

namespace {

// A recomputed call keeps its output alone and makes the rest again.
CallBytes call_of(const program::LayerMemory& memory) {
  CallBytes call;
  call.saved = static_cast<double>(memory.saved_bytes);
  call.selective = call.saved - static_cast<double>(memory.recomputable_bytes);
  call.output = static_cast<double>(memory.output_bytes);
  call.checkpoint = call.output;
  call.recomputed = call.saved - call.output;
  call.workspace = static_cast<double>(memory.backward_peak_bytes);
  call.forward = static_cast<double>(memory.forward_peak_bytes);
  call.input_gradient = static_cast<double>(memory.input_gradient_bytes);
  return call;
}

}  // namespace

bool is_of_engine(const JobSpec& job) {
  const bool on_cpus_alone = job.model.num_experts > 0 || job.model.kv_lora_rank > 0;
  if (!job.parallel.framework.is_engine()) return false;
  if (on_cpus_alone && job.cluster.device != DeviceKind::kCpu) return false;
  return model::is_mixture_decoder(job.model) || model::is_dense_decoder(job.model) ||
         model::is_dense_encoder_decoder(job.model) || model::is_list(job.model);
}

bool runs_in_engine(const JobSpec& job) {
  return job.cluster.device == DeviceKind::kCpu && is_of_engine(job);
}

bool recomputes_mlps(const JobSpec& job) {
  return is_of_engine(job) && job.training.attention == AttentionKind::kFlash;
}

CallBytes engine_call_bytes(const JobSpec& job, const choice::LayoutChoice& choice,
                            const model::LayerSpec& layer) {
  const model::LayerCall call{choice.micro_batch,
                              job.training.sequence_length,
                              choice.tensor,
                              0,
                              engine_dtype(choice.precision),
                              choice.sequence_parallel,
                              job.parallel.tensor_parallel};
  return call_of(program::memory_of(job.model, layer, call));
}

}  // namespace smp::cost
