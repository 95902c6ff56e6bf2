#include "engine_bytes.h"

#include "smp/plan/dtype.h"
#include "smp/plan/layers.h"
#include "smp/plan/model_family.h"

namespace smp {
namespace {

DType dtype_of(Precision precision) {
  switch (precision) {
    case Precision::kFp32: return DType::kF32;
    case Precision::kFp64: return DType::kF64;
    case Precision::kBf16:
    case Precision::kFp8: return DType::kBF16;
    case Precision::kFp16: return DType::kF16;
  }
  return DType::kF32;
}

// A recomputed call keeps its output alone and makes the rest again.
CallBytes call_of(const LayerMemory& memory) {
  CallBytes call;
  call.saved = static_cast<double>(memory.saved_bytes);
  call.selective = call.saved - static_cast<double>(memory.thinned_bytes);
  call.output = static_cast<double>(memory.output_bytes);
  call.checkpoint = call.output;
  call.recomputed = call.saved - call.output;
  call.workspace = static_cast<double>(memory.backward_peak_bytes);
  call.forward = static_cast<double>(memory.forward_peak_bytes);
  call.input_gradient = static_cast<double>(memory.input_gradient_bytes);
  return call;
}

}  // namespace

bool runs_in_engine(const JobSpec& job) {
  return job.cluster.device == DeviceKind::kCpu &&
         job.parallel.profile.value_or(Profile::kSmp) == Profile::kSmp &&
         (is_dense_decoder(job.model) || is_dense_encoder_decoder(job.model));
}

void add_engine_bytes(LayerBytes& layers, const JobSpec& job, const LayoutChoice& choice) {
  const ModelSpec& model = job.model;
  const LayerCall call{choice.micro_batch, job.training.sequence_length, choice.tensor, 0,
                       dtype_of(choice.precision)};
  layers.embedding = call_of(memory_of(model, {LayerKind::kEmbedding, 0, ""}, call));
  layers.block = call_of(memory_of(model, {LayerKind::kBlock, 1, ""}, call));
  layers.head = call_of(memory_of(model, {LayerKind::kHead, model.num_layers + 1, ""}, call));
}

}  // namespace smp
