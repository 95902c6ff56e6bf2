#include "smp/planner/cost/layer_bytes.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cost/frozen_layers.h"
#include "cost/held_by_messages.h"
#include "cost/in_engine.h"
#include "cost/layer_costs.h"
#include "cost/layer_parameters.h"
#include "cost/rank_order.h"
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

// Layers that predict further tokens have logits of their own, before the head's.
void add_further_logits(CallBytes& head, const JobSpec& job, const choice::LayoutChoice& choice) {
  const double kept = habits_of(job, choice, true).logit.kept;
  const double padded = padding_of_logits(job, choice);
  const double further =
      static_cast<double>(job.model.num_mtp_layers) * kept * logits_of(job, choice) * padded;
  const double padding = (padded - 1) * logits_of(job, choice);
  const framework::LogitBytes logit = habits_of(job, choice, true).logit;
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

// What all blocks have in common, and their fullest.
void add_fullest(LayerBytes& layers) {
  const LayerKinds& kinds = *layers.kinds;
  layers.boundary = layers.embedding().call.output;
  for (size_t kind = kinds.first_block(); kind < kinds.end_blocks(); ++kind) {
    const KindBytes& each = layers.of_kind[kind];
    const auto raise = [](double& most, double one) { most = std::max(most, one); };
    if (!kinds.has_embedding()) raise(layers.boundary, each.call.output);
    raise(layers.largest_block_parameters, each.all_parameters());
    raise(layers.trained_block_parameters, each.adds.dense + each.adds.experts);
    raise(layers.frozen_block_bytes, each.adds.frozen_bytes + each.adds.frozen_expert_bytes);
  }
  layers.largest_layer_parameters = std::max(
      {layers.largest_block_parameters, layers.embedding().parameters, layers.head().parameters});
}

uint64_t bits(int64_t value, int width) {
  return static_cast<uint64_t>(value) & ((uint64_t{1} << width) - 1);
}

CallBytes bytes_of_values(const JobSpec& job, const choice::LayoutChoice& choice,
                          const model::LayerSpec& layer, bool is_frozen,
                          const program::LayerProgram& program) {
  const program::LayerMemory memory = program::memory_of(program);
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
    add_further_logits(call, job, choice);
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
                     const program::LayerProgram& program) {
  CallBytes call = bytes_of_values(job, choice, layer, is_frozen, program);
  const bool in_engine = runs_in_engine(job) || model::is_list(job.model);
  if (!in_engine && model::freezes_weights(job)) fine_tune(call, job, choice, layer, is_frozen);
  return call;
}

CallBytes call_bytes(const JobSpec& job, const choice::LayoutChoice& choice,
                     const model::LayerSpec& layer, bool is_frozen) {
  return call_bytes(job, choice, layer, is_frozen, layer_program(job, choice, layer, is_frozen));
}

LayerBytes layer_bytes(const JobSpec& job, const choice::LayoutChoice& choice,
                       std::shared_ptr<const LayerKinds> kinds, const KindPrograms& programs) {
  LayerBytes layers;
  layers.kinds = std::move(kinds);
  for (size_t i = 0; i < layers.kinds->size(); ++i) {
    const LayerKinds::Kind& kind = (*layers.kinds)[i];
    KindBytes& bytes = layers.of_kind.emplace_back();
    count_parameters(bytes, job, choice, kind.layer);
    if (model::freezes_weights(job)) {
      freeze_parameters(bytes, job, choice, kind.layer, kind.is_frozen);
    }
    bytes.call = call_bytes(job, choice, kind.layer, kind.is_frozen, programs[i]);
  }
  add_fullest(layers);
  if (runs_in_engine(job) || model::is_list(job.model)) return layers;
  const size_t block = layers.kinds->first_block();
  const double whole = element_bytes(choice.precision) *
                       static_cast<double>(call_of(job, choice).tokens()) *
                       static_cast<double>(job.model.hidden_size);
  layers.held = held_by_messages(job, choice, (*layers.kinds)[block].layer, whole);
  return layers;
}

LayerBytes layer_bytes(const JobSpec& job, const choice::LayoutChoice& choice) {
  auto kinds = std::make_shared<LayerKinds>(job);
  const KindPrograms programs = kind_programs(job, choice, *kinds);
  return layer_bytes(job, choice, std::move(kinds), programs);
}

uint64_t program_key(const choice::LayoutChoice& choice) {
  uint64_t key = bits(choice.tensor, 10);
  key = key << 10 | bits(choice.context, 10);
  key = key << 12 | bits(choice.expert, 12);
  key = key << 8 | bits(choice.expert_tensor, 8);
  key = key << 3 | bits(static_cast<int64_t>(choice.precision), 3);
  return key << 1 | bits(choice.sequence_parallel, 1);
}

LayerKey layer_key(const JobSpec& job, const choice::LayoutChoice& choice) {
  uint64_t key = program_key(choice) << 15 | bits(choice.micro_batch, 15);
  key = key << 3 | bits(static_cast<int64_t>(choice.placement), 3);
  key = key << 1 | bits(choice.pipeline > 1, 1);
  const bool crosses = framework::framework_model(job).pipeline_crossing_s > 0 &&
                       choice.pipeline > 1 && boundaries_between_hosts(choice, job) > 0;
  const int64_t casts = casts_weights(job, choice) ? choice.microbatches : 0;
  return {key, static_cast<uint64_t>(casts) << 3 | static_cast<uint64_t>(choice.recompute) << 1 |
                   (crosses ? 1 : 0)};
}

}  // namespace smp::cost
