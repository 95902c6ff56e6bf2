#include "cost/frozen_layers.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "cost/layer_parameters.h"
#include "cost/routed_tokens.h"
#include "cost/state_bytes.h"
#include "smp/plan/base/check.h"
#include "smp/plan/model/adapters.h"
#include "smp/plan/model/frozen_parts.h"
#include "smp/plan/model/layers.h"
#include "smp/plan/model/parameter_counts.h"

namespace smp::cost {
namespace {

constexpr double kDropoutMask = 1;  // a byte an element
const std::vector<std::string> kAllLinear = {"all_linear"};

// Sizes that the adapters of a block are counted with.
struct AdaptedCall {
  AdaptedCall(const JobSpec& job_spec, const choice::LayoutChoice& layout)
      : job(job_spec), choice(layout) {
    element = element_bytes(choice.precision);
    tokens = static_cast<double>(choice.micro_batch) *
             static_cast<double>(job.training.sequence_length) / choice.context;
    split = choice.sequence_parallel && choice.tensor > 1;
    const double local = split ? tokens / choice.tensor : tokens;
    const double expert_tensor = std::max(1, choice.expert_tensor);
    routed = fullest_share(job) * local * static_cast<double>(job.model.experts_per_token) *
             (split ? expert_tensor : 1);
  }

  // Of a matrix on one rank.
  double width(const model::ParameterSum& sum, bool is_expert) const {
    return is_expert ? sum.of_rank(std::max(1, choice.expert_tensor), 1)
                     : sum.of_rank(choice.tensor, job.model.num_kv_heads);
  }
  double rows(const model::AdaptedMatrix& matrix) const {
    return matrix.is_expert ? routed : tokens;
  }

  const JobSpec& job;
  const choice::LayoutChoice& choice;
  double element = 2, tokens = 0, routed = 0;
  bool split = false;  // sequence parallelism cuts a norm's output
};

// Bytes of a matrix's input, as its adapter's gradient reads it.
double input_bytes(const AdaptedCall& call, const model::AdaptedMatrix& matrix) {
  const double cut = matrix.input == model::AdapterInput::kNorm && call.split && !matrix.is_expert
                         ? call.choice.tensor
                         : 1;
  return call.element * call.rows(matrix) * call.width(matrix.in, matrix.is_expert) / cut;
}

// Whether something else keeps the input: flash attention its output, the encoder what it gave.
bool is_kept_anyway(const AdaptedCall& call, const model::AdaptedMatrix& matrix) {
  return matrix.input == model::AdapterInput::kMemory ||
         (matrix.input == model::AdapterInput::kCore &&
          call.job.training.attention == AttentionKind::kFlash);
}

// What the adapters of a block keep: their inputs, once for all that read the same, and A x. With
// dropout each adapter has an input of its own, and its mask.
double kept_by_adapters(const AdaptedCall& call,
                        const std::vector<model::AdaptedMatrix>& matrices) {
  const LoraSpec& lora = call.job.training.lora;
  std::set<std::string> inputs;
  double kept = 0;
  for (const model::AdaptedMatrix& matrix : matrices) {
    kept += call.element * call.rows(matrix) * static_cast<double>(lora.rank);
    const double input = input_bytes(call, matrix);
    if (lora.dropout > 0) {
      kept += input * (1 + kDropoutMask / call.element);
    } else if (!is_kept_anyway(call, matrix) && inputs.insert(matrix.reads).second) {
      kept += input;
    }
  }
  return kept;
}

// Elements of a block's largest matrix on one rank; of experts one at a time.
double largest_matrix(const AdaptedCall& call, model::LayerKind block) {
  double largest = 0;
  for (const model::AdaptedMatrix& matrix : model::adapted_matrices(
           call.job.model, block, kAllLinear, call.job.parallel.tensor_parallel)) {
    largest = std::max(largest, call.width(matrix.in, matrix.is_expert) *
                                    call.width(matrix.out, matrix.is_expert));
  }
  return largest;
}

void add_adapters(CallBytes& bytes, const AdaptedCall& call, model::LayerKind block) {
  const LoraSpec& lora = call.job.training.lora;
  const double kept =
      kept_by_adapters(call, model::adapted_matrices(call.job.model, block, lora.targets,
                                                     call.job.parallel.tensor_parallel));
  bytes.saved += kept;
  bytes.selective = std::min(bytes.selective + kept, bytes.saved);
  bytes.recomputed += kept;
  bytes.forward += kept;
  if (quantized_bytes(lora.quantized) == 0) return;
  const double whole = call.element * largest_matrix(call, block);
  bytes.workspace += whole;
  bytes.forward += whole;
}

// A forward alone: what it makes is gone when it ends.
void end_backward(CallBytes& bytes) {
  bytes.saved = bytes.selective = bytes.checkpoint = bytes.recomputed = 0;
  bytes.workspace = bytes.input_gradient = 0;
}

// Elements of a block's matrices that are not of experts.
double matrix_elements(const AdaptedCall& call, model::LayerKind block) {
  double elements = 0;
  for (const model::AdaptedMatrix& matrix : model::adapted_matrices(
           call.job.model, block, kAllLinear, call.job.parallel.tensor_parallel)) {
    if (matrix.is_expert) continue;
    elements += call.width(matrix.in, false) * call.width(matrix.out, false);
  }
  return elements;
}

// A block whose weights are all frozen.
void freeze_block(KindBytes& bytes, const AdaptedCall& call, model::LayerKind block) {
  const double stored = quantized_bytes(call.job.training.lora.quantized);
  bytes.adds = {.frozen = bytes.parameters, .frozen_experts = bytes.expert_parameters};
  bytes.adds.frozen_bytes = call.element * bytes.parameters;
  bytes.adds.frozen_expert_bytes = call.element * bytes.expert_parameters;
  if (stored == 0) return;
  bytes.adds.frozen_bytes -= (call.element - stored) * matrix_elements(call, block);
  bytes.adds.frozen_expert_bytes = stored * bytes.expert_parameters;
}

void add_adapter_parameters(KindBytes& bytes, const AdaptedCall& call, model::LayerKind block) {
  const LoraSpec& lora = call.job.training.lora;
  for (const model::AdaptedMatrix& matrix : model::adapted_matrices(
           call.job.model, block, lora.targets, call.job.parallel.tensor_parallel)) {
    const double parameters = call.width(matrix.parameters(lora.rank), matrix.is_expert);
    if (matrix.is_expert) {
      bytes.adds.experts +=
          static_cast<double>(call.job.model.num_experts) / call.choice.expert * parameters;
    } else {
      bytes.adds.dense += parameters;
    }
  }
}

// Of an end of the model so many parameters are frozen.
void freeze_end(KindBytes& bytes, double element, double frozen) {
  bytes.adds.dense -= frozen;
  bytes.adds.frozen = frozen;
  bytes.adds.frozen_bytes = element * frozen;
}

}  // namespace

model::LayerKind block_of(const ModelSpec& model, const model::LayerSpec& layer) {
  if (layer.kind != model::LayerKind::kMtpBlock) return layer.kind;
  return model::has_experts(model, layer) ? model::LayerKind::kMoeBlock : model::LayerKind::kBlock;
}

bool trains_blocks(const JobSpec& job) { return job.training.lora.rank == 0; }

bool trains_projection(const JobSpec& job) {
  if (job.training.lora.rank > 0) return false;
  return job.training.frozen.empty() || !model::frozen_parts(job).projection(job.model);
}

double quantized_bytes(QuantizedKind kind) {
  constexpr double kBlock = 64, kScales = 256;
  switch (kind) {
    case QuantizedKind::kNone: return 0;
    case QuantizedKind::kNf4: return 0.5 + kFp32Bytes / kBlock;
    case QuantizedKind::kNf4Double: return 0.5 + 1 / kBlock + kFp32Bytes / (kBlock * kScales);
    case QuantizedKind::kFp8:
    case QuantizedKind::kInt8: return 1;
  }
  check_failed(__FILE__, __LINE__, "unknown storage of frozen weights");
}

void freeze_parameters(KindBytes& bytes, const JobSpec& job, const choice::LayoutChoice& choice,
                       const model::LayerSpec& layer, bool is_frozen) {
  const AdaptedCall call(job, choice);
  const bool adapted = job.training.lora.rank > 0;
  if (model::is_transformer_block(layer.kind)) {
    const model::LayerKind block = block_of(job.model, layer);
    if (adapted || is_frozen) freeze_block(bytes, call, block);
    if (adapted) add_adapter_parameters(bytes, call, block);
    return;
  }
  const model::FrozenParts parts = model::frozen_parts(job);
  if (layer.kind == model::LayerKind::kEmbedding) {
    if (adapted || parts.embedding) freeze_end(bytes, call.element, bytes.parameters);
    return;
  }
  const double copy = tied_copy(job, choice);
  double frozen = 0;
  if (adapted || parts.head) frozen += bytes.parameters - copy;
  if (adapted || parts.embedding) frozen += copy;
  freeze_end(bytes, call.element, frozen);
}

void fine_tune(CallBytes& call, const JobSpec& job, const choice::LayoutChoice& choice,
               const model::LayerSpec& layer, bool is_frozen) {
  const bool embeds = layer.kind == model::LayerKind::kEmbedding;
  if (job.training.lora.rank > 0) {
    // The first block's norm has no trained weights before it and keeps nothing of the embedding's
    // output.
    if (embeds) end_backward(call);
    if (!model::is_transformer_block(layer.kind)) return;
    return add_adapters(call, {job, choice}, block_of(job.model, layer));
  }
  const model::FrozenParts parts = model::frozen_parts(job);
  if (embeds && parts.embedding) {
    end_backward(call);
    const double kept = parts.first_blocks > 0 ? 0 : call.output;  // the first block's input
    call.saved = call.selective = call.checkpoint = kept;
  }
  if (is_frozen && parts.first_blocks_end_backward()) end_backward(call);
}

double gathered_block_bytes(const JobSpec& job, const LayerBytes& layers, double compute) {
  const LoraSpec& lora = job.training.lora;
  return quantized_bytes(lora.quantized) == 0 || lora.rank == 0
             ? compute * layers.largest_block_parameters
             : layers.frozen_block_bytes;
}

}  // namespace smp::cost
