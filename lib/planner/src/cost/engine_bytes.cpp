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

// A block is the mean of all layers but the last.
void add_list_bytes(LayerBytes& layers, const ModelSpec& model, const model::LayerCall& call) {
  const double share = 1 / static_cast<double>(model.num_layers);
  for (const model::LayerSpec& layer : model::layers_of(model)) {
    const CallBytes bytes = call_of(program::memory_of(model, layer, call));
    if (model::makes_loss(layer.kind)) {
      layers.head = bytes;
      continue;
    }
    for (double CallBytes::*part :
         {&CallBytes::saved, &CallBytes::selective, &CallBytes::checkpoint, &CallBytes::recomputed,
          &CallBytes::workspace, &CallBytes::output, &CallBytes::forward,
          &CallBytes::input_gradient}) {
      layers.block.*part += share * bytes.*part;
    }
  }
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

void add_engine_bytes(LayerBytes& layers, const JobSpec& job, const choice::LayoutChoice& choice) {
  const ModelSpec& model = job.model;
  const model::LayerCall call{choice.micro_batch,
                              job.training.sequence_length,
                              choice.tensor,
                              0,
                              engine_dtype(choice.precision),
                              choice.sequence_parallel,
                              job.parallel.tensor_parallel};
  if (model::is_list(model)) return add_list_bytes(layers, model, call);
  layers.embedding =
      call_of(program::memory_of(model, {model::LayerKind::kEmbedding, 0, ""}, call));
  layers.block = call_of(program::memory_of(model, {model::LayerKind::kBlock, 1, ""}, call));
  if (model.num_experts > 0) {
    layers.moe_block =
        call_of(program::memory_of(model, {model::LayerKind::kMoeBlock, 1, ""}, call));
  }
  if (model.decoder_layers > 0) {
    const int64_t last = model.num_layers + model.decoder_layers;
    layers.cross_block =
        call_of(program::memory_of(model, {model::LayerKind::kCrossBlock, last, ""}, call));
  }
  layers.head =
      call_of(program::memory_of(model, {model::LayerKind::kHead, model.num_layers + 1, ""}, call));
}

}  // namespace smp::cost
