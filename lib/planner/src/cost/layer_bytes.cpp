#include "smp/planner/cost/layer_bytes.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cost/frozen_layers.h"
#include "cost/in_engine.h"
#include "cost/layer_parameters.h"
#include "cost/layer_program.h"
#include "cost/state_bytes.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/plan/model/frozen_parts.h"
#include "smp/plan/model/operators.h"
#include "smp/plan/program/liveness.h"
#include "smp/planner/cost/narrow_matmuls.h"

namespace smp::cost {
namespace {

// Our engine on GPUs begins each row of logits at a multiple of 16 bytes, for cuBLAS's sake: bytes
// beyond the columns, by element of a whole row.
double padding_of_logits(const JobSpec& job, const choice::LayoutChoice& choice) {
  constexpr double kRowBytes = 16;
  if (job.cluster.device == DeviceKind::kCpu || !job.parallel.framework.is_engine()) return 1;
  const double columns = vocabulary_rows(job, choice);
  const double row = columns * element_bytes(choice.precision);
  return std::ceil(row / kRowBytes) * kRowBytes / row;
}

double logits_of(const JobSpec& job, const choice::LayoutChoice& choice) {
  const double tokens = static_cast<double>(choice.micro_batch) *
                        static_cast<double>(job.training.sequence_length) / choice.context;
  return tokens * vocabulary_rows(job, choice);
}

// What the head's program leaves out: the padding of its logits, and the logits of layers that
// predict further tokens, which come before the head's.
void complete_logits(CallBytes& head, const JobSpec& job, const choice::LayoutChoice& choice) {
  const framework::LogitBytes logit = habits_of(job, choice, true).logit;
  const double logits = logits_of(job, choice);
  const double padded = padding_of_logits(job, choice);
  const double padding = (padded - 1) * logits;
  const double further =
      static_cast<double>(job.model.num_mtp_layers) * logit.kept * padded * logits;
  head.saved += further + padding * logit.kept;
  head.forward += further + padding * logit.forward;
  head.workspace += padding * std::max(0.0, logit.backward - logit.kept);
}

// torchtitan's policy of selective recompute keeps the outputs of every other matmul (of a block Q,
// V, the gate's and the second one of its MLP) and of attention.
double kept_of_operations(const JobSpec& job, const choice::LayoutChoice& choice, double wide) {
  const model::LayerCall call = call_of(job, choice);
  const double row = element_bytes(choice.precision) * static_cast<double>(call.tokens());
  const double ranks = static_cast<double>(call.attention_degree());
  const double heads = std::ceil(static_cast<double>(job.model.num_heads) / ranks);
  const double kv_heads =
      std::max(1.0, std::ceil(static_cast<double>(job.model.num_kv_heads) / ranks));
  const double width =
      static_cast<double>(job.model.ffn_hidden_size) / (call.kinds.mlp ? choice.tensor : 1);
  return 2 * wide + row * (2 * heads + kv_heads) * static_cast<double>(job.model.head_dim) +
         row * width + kFp32Bytes * static_cast<double>(call.tokens()) * heads;
}

CallBytes bytes_of_values(const JobSpec& job, const choice::LayoutChoice& choice,
                          const model::LayerSpec& layer, bool is_frozen,
                          const program::LayerMemory& memory) {
  CallBytes call;
  call.output = static_cast<double>(memory.output_bytes);
  call.saved = static_cast<double>(memory.saved_bytes);
  call.selective =
      call.saved + static_cast<double>(memory.reread_bytes - memory.recomputable_bytes);
  call.checkpoint = call.output;  // what the layer before made, which is as large
  call.recomputed = call.saved - call.checkpoint;
  call.workspace = static_cast<double>(memory.backward_peak_bytes);
  call.forward = static_cast<double>(memory.forward_peak_bytes);
  call.input_gradient = static_cast<double>(memory.input_gradient_bytes);
  if (runs_in_engine(job) || model::is_list(job.model)) return call;

  const framework::FrameworkModel& framework = framework::framework_model(job);
  if (layer.kind == model::LayerKind::kHead) {
    call.output = 0;
    call.recomputed = 0;
    complete_logits(call, job, choice);
  }
  if (!model::is_transformer_block(layer.kind)) {
    call.selective = call.checkpoint = call.saved;
    call.recomputed = 0;
    return call;
  }
  // Without gradients of weights no norm of several kernels reads its input in its own precision.
  const bool copies = !(framework.fused_kernels || job.training.compiled) &&
                      job.model.norm == NormKind::kRmsNorm &&
                      element_bytes(choice.precision) < kFp32Bytes;
  if (copies && !trains(job, layer, is_frozen)) {
    call.saved -= call.output;
    call.selective -= call.output;
  }
  if (framework.selective_per_operation) {
    call.selective = kept_of_operations(job, choice, call.output);
  }
  const bool split = choice.sequence_parallel && choice.tensor > 1;
  if (job.parallel.partition_activations && !split && choice.tensor > 1) {
    // Tensor ranks keep a part of a checkpoint each, which is gathered again beside it.
    call.recomputed += call.checkpoint;
    call.checkpoint /= choice.tensor;
  }
  return call;
}

}  // namespace

CallBytes call_bytes(const JobSpec& job, const choice::LayoutChoice& choice,
                     const model::LayerSpec& layer, bool is_frozen,
                     const program::LayerMemory& memory) {
  CallBytes call = bytes_of_values(job, choice, layer, is_frozen, memory);
  const bool in_engine = runs_in_engine(job) || model::is_list(job.model);
  if (!in_engine && model::freezes_weights(job)) fine_tune(call, job, choice, layer, is_frozen);
  return call;
}

CallBytes call_bytes(const JobSpec& job, const choice::LayoutChoice& choice,
                     const model::LayerSpec& layer, bool is_frozen) {
  return call_bytes(job, choice, layer, is_frozen,
                    program::memory_of(layer_program(job, choice, layer, is_frozen)));
}

}  // namespace smp::cost
