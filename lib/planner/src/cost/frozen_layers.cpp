#include "cost/frozen_layers.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "cost/routed_tokens.h"
#include "cost/state_bytes.h"
#include "smp/plan/base/check.h"
#include "smp/plan/model/adapters.h"
#include "smp/plan/model/frozen_parts.h"
#include "smp/plan/model/layers.h"

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

struct BlockKind {
  model::LayerKind kind;
  CallBytes LayerBytes::*call;
  FrozenBlock LayerBytes::*frozen;
  double LayerBytes::*parameters;
};
constexpr BlockKind kBlockKinds[] = {
    {model::LayerKind::kBlock, &LayerBytes::block, &LayerBytes::frozen_block,
     &LayerBytes::block_parameters},
    {model::LayerKind::kMoeBlock, &LayerBytes::moe_block, &LayerBytes::frozen_moe_block,
     &LayerBytes::moe_block_parameters},
    {model::LayerKind::kCrossBlock, &LayerBytes::cross_block, &LayerBytes::frozen_cross_block,
     &LayerBytes::cross_block_parameters}};

bool has_kind(const ModelSpec& model, model::LayerKind kind) {
  return kind == model::LayerKind::kBlock ||
         (kind == model::LayerKind::kMoeBlock ? model.num_experts > 0 : model.decoder_layers > 0);
}

}  // namespace

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

void count_frozen(LayerBytes& layers, const JobSpec& job, const choice::LayoutChoice& choice) {
  const AdaptedCall call(job, choice);
  const LoraSpec& lora = job.training.lora;
  const TensorKinds& kinds = job.parallel.tensor_parallel;
  const double stored = quantized_bytes(lora.quantized);
  layers.frozen_element = call.element;
  for (const BlockKind& kind : kBlockKinds) {
    if (!has_kind(job.model, kind.kind)) continue;
    FrozenBlock& frozen = layers.*kind.frozen;
    frozen.bytes = call.element * layers.*kind.parameters;
    if (kind.kind == model::LayerKind::kMoeBlock) {
      layers.expert_frozen_bytes = call.element * layers.expert_parameters;
    }
    if (stored > 0) {
      double matrices = 0;
      for (const model::AdaptedMatrix& matrix :
           model::adapted_matrices(job.model, kind.kind, kAllLinear, kinds)) {
        if (matrix.is_expert) continue;
        matrices += call.width(matrix.in, false) * call.width(matrix.out, false);
      }
      frozen.bytes -= (call.element - stored) * matrices;
      if (kind.kind == model::LayerKind::kMoeBlock) {
        layers.expert_frozen_bytes = stored * layers.expert_parameters;
      }
    }
    if (lora.rank == 0) continue;
    for (const model::AdaptedMatrix& matrix :
         model::adapted_matrices(job.model, kind.kind, lora.targets, kinds)) {
      const double parameters = call.width(matrix.parameters(lora.rank), matrix.is_expert);
      if (matrix.is_expert) {
        layers.expert_adapters +=
            static_cast<double>(job.model.num_experts) / choice.expert * parameters;
      } else {
        frozen.adapters += parameters;
      }
    }
  }
  const model::FrozenParts parts = model::frozen_parts(job);
  const bool adapted = lora.rank > 0;
  const double copy =
      job.model.tied_embeddings && choice.pipeline > 1
          ? vocabulary_rows(job, choice) * static_cast<double>(job.model.hidden_size)
          : 0;
  if (adapted || parts.embedding) layers.embedding_frozen = layers.embedding_parameters;
  if (adapted || parts.head) layers.head_frozen = layers.head_parameters - copy;
  if (adapted || parts.embedding) layers.head_frozen += copy;
}

void freeze_calls(LayerBytes& layers, const JobSpec& job, const choice::LayoutChoice& choice) {
  const AdaptedCall call(job, choice);
  if (job.training.lora.rank > 0) {
    // The first block's norm has no trained weights before it and keeps nothing of the embedding's
    // output.
    end_backward(layers.embedding);
    for (const BlockKind& kind : kBlockKinds) {
      if (has_kind(job.model, kind.kind)) add_adapters(layers.*kind.call, call, kind.kind);
    }
    return;
  }
  const model::FrozenParts parts = model::frozen_parts(job);
  if (parts.embedding) {
    const double output = layers.embedding.output;
    end_backward(layers.embedding);
    const double kept = parts.first_blocks > 0 ? 0 : output;  // the first block's input
    layers.embedding.saved = layers.embedding.selective = layers.embedding.checkpoint = kept;
  }
  if (!parts.first_blocks_end_backward()) return;
  for (const BlockKind& kind : kBlockKinds) end_backward((layers.*kind.frozen).call);
}

void freeze(StageParameters& parameters, const JobSpec& job, const LayerBytes& layers,
            const StageBlocks& blocks, bool embedding, bool head) {
  const bool adapted = job.training.lora.rank > 0;
  const double dense = adapted ? blocks.dense : blocks.frozen_dense;
  const double moe = adapted ? blocks.moe : blocks.frozen_moe;
  const double cross = adapted ? blocks.cross : blocks.frozen_cross;
  const double of_blocks = dense * layers.block_parameters + moe * layers.moe_block_parameters +
                           cross * layers.cross_block_parameters;
  // With adapters all that is left beside the blocks: also what predicts further tokens.
  const double others =
      adapted ? parameters.dense - of_blocks
              : (embedding ? layers.embedding_frozen : 0) + (head ? layers.head_frozen : 0);
  parameters.frozen = of_blocks + others;
  parameters.frozen_experts = moe * layers.expert_parameters;
  parameters.frozen_bytes =
      dense * layers.frozen_block.bytes + moe * layers.frozen_moe_block.bytes +
      cross * layers.frozen_cross_block.bytes + layers.frozen_element * others;
  parameters.frozen_expert_bytes = moe * layers.expert_frozen_bytes;
  parameters.dense -= parameters.frozen;
  parameters.experts -= parameters.frozen_experts;
  if (!adapted) return;
  parameters.dense = dense * layers.frozen_block.adapters + moe * layers.frozen_moe_block.adapters +
                     cross * layers.frozen_cross_block.adapters;
  parameters.experts = moe * layers.expert_adapters;
}

double gathered_block_bytes(const JobSpec& job, const LayerBytes& layers, double compute) {
  const double whole = compute * layers.largest_block_parameters();
  if (quantized_bytes(job.training.lora.quantized) == 0 || job.training.lora.rank == 0)
    return whole;
  return std::max({layers.frozen_block.bytes,
                   layers.frozen_moe_block.bytes + layers.expert_frozen_bytes,
                   layers.frozen_cross_block.bytes});
}

double trained_block_parameters(const JobSpec& job, const LayerBytes& layers) {
  if (job.training.lora.rank == 0) return layers.largest_block_parameters();
  return std::max({layers.frozen_block.adapters,
                   layers.frozen_moe_block.adapters + layers.expert_adapters,
                   layers.frozen_cross_block.adapters});
}

}  // namespace smp::cost
