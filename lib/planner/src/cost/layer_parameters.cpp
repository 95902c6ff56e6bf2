#include "cost/layer_parameters.h"

#include <algorithm>
#include <cmath>

#include "smp/plan/layout/partition.h"
#include "smp/plan/model/hybrid.h"
#include "smp/plan/model/layers.h"
#include "smp/plan/model/operators.h"
#include "smp/plan/model/parameter_counts.h"
#include "smp/plan/model/persistent_tensors.h"

namespace smp::cost {
namespace {

// Blocks with experts among the first `count` blocks.
int64_t moe_blocks_before(const ModelSpec& model, int64_t count) {
  if (model::is_hybrid(model)) {
    return model::letters_between(model, model::kExpertsLetter, 0, count);
  }
  const int64_t after = count - model.first_dense_layers;
  if (model.num_experts == 0 || after <= 0) return 0;
  return (after + model.moe_layer_period - 1) / model.moe_layer_period;
}

// Of `count` blocks after the first `before` of the model.
StageBlocks counted_blocks(const ModelSpec& model, int64_t before, int64_t count) {
  if (model.decoder_layers > 0) {
    const int64_t encoder = std::clamp<int64_t>(model.num_layers - before, 0, count);
    return {.dense = static_cast<double>(encoder), .cross = static_cast<double>(count - encoder)};
  }
  const int64_t moe = moe_blocks_before(model, before + count) - moe_blocks_before(model, before);
  return {static_cast<double>(count - moe), static_cast<double>(moe)};
}

// Of each chunk, as listed, or else as the choice deals them to stages.
std::vector<int64_t> chunk_blocks(const ModelSpec& model, const choice::LayoutChoice& choice,
                                  const schedule::ScheduleShape& shape) {
  const int64_t all = model::block_count(model);
  if (!choice.partition.empty()) {
    return layout::blocks_per_chunk(shape, all, choice.partition.blocks());
  }
  std::vector<int64_t> blocks;
  for (int64_t position = 0; position < shape.stages * shape.chunks(); ++position) {
    const schedule::ChunkPlace place = schedule::place_of_chunk(shape, position);
    const int64_t of_stage = choice::stage_layers(choice, all, place.stage);
    const int64_t more = place.chunk < of_stage % shape.chunks() ? 1 : 0;
    blocks.push_back(of_stage / shape.chunks() + more);
  }
  return blocks;
}

// Of a partition that is listed, or with frozen blocks: chunk by chunk, because a stage's chunks
// lie apart in the model.
StageBlocks listed_stage_blocks(const ModelSpec& model, const choice::LayoutChoice& choice,
                                int64_t stage, int64_t frozen) {
  const schedule::ScheduleShape shape = choice::shape_of(choice);
  const std::vector<int64_t> chunks = chunk_blocks(model, choice, shape);
  StageBlocks sum;
  int64_t before = 0;
  for (size_t position = 0; position < chunks.size(); ++position) {
    if (schedule::place_of_chunk(shape, static_cast<int64_t>(position)).stage == stage) {
      const StageBlocks chunk = counted_blocks(model, before, chunks[position]);
      sum.dense += chunk.dense;
      sum.moe += chunk.moe;
      sum.cross += chunk.cross;
      const int64_t cold = std::clamp<int64_t>(frozen - before, 0, chunks[position]);
      const StageBlocks untrained = counted_blocks(model, before, cold);
      sum.frozen_dense += untrained.dense;
      sum.frozen_moe += untrained.moe;
      sum.frozen_cross += untrained.cross;
      sum.frozen_chunks += cold > 0 ? 1 : 0;
    }
    before += chunks[position];
  }
  return sum;
}

// Blocks of all earlier stages.
int64_t blocks_before(const choice::LayoutChoice& choice, int64_t all, int64_t stage) {
  if (stage == 0) return 0;
  const int64_t first = choice::stage_layers(choice, all, 0);
  // From the second stage to the last but one they are as even as possible, longer ones first.
  const int64_t most = stage > 1 ? choice::stage_layers(choice, all, 1) : 0;
  const int64_t least = stage > 1 ? choice::stage_layers(choice, all, stage - 1) : 0;
  if (most == least) return first + (stage - 1) * most;
  const bool first_counts = choice.first_stage_layers == 0;  // it is one of the longer ones
  const int64_t others =
      choice.pipeline - (first_counts ? 0 : 1) - (choice.last_stage_layers > 0 ? 1 : 0);
  const int64_t shared = all - choice.first_stage_layers - choice.last_stage_layers;
  const int64_t longer = shared % others - (first_counts ? 1 : 0);
  return first + longer * most + (stage - 1 - longer) * least;
}

// Of the first layer of each kind.
void count_persistent(LayerBytes& layers, const JobSpec& job, const choice::LayoutChoice& choice) {
  const ModelSpec& model = job.model;
  const int64_t threshold = job.parallel.param_persistence_threshold;
  if (threshold == 0 || model::is_list(model)) return;
  const auto count = [&](double& elements, const model::LayerSpec& layer) {
    const std::vector<model::ParameterSpec> tensors =
        model::parameters_of(model, layer, job.parallel.tensor_parallel);
    const std::vector<bool> persistent =
        model::persistent_tensors(tensors, threshold, model::kv_copies(model, choice.tensor) > 1);
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (!persistent[i]) continue;
      elements +=
          static_cast<double>(model::tensor_box(model, tensors[i], choice.tensor, 0).size());
    }
  };
  for (const model::LayerSpec& layer : model::layers_of(model)) {
    switch (layer.kind) {
      case model::LayerKind::kEmbedding: count(layers.embedding_persistent, layer); break;
      case model::LayerKind::kHead: count(layers.head_persistent, layer); break;
      case model::LayerKind::kCrossBlock:
        if (layers.cross_block_persistent == 0) count(layers.cross_block_persistent, layer);
        break;
      default:
        if (layers.block_persistent == 0) count(layers.block_persistent, layer);
    }
  }
}

}  // namespace

double vocabulary_rows(const JobSpec& job, const choice::LayoutChoice& choice) {
  const int64_t ranks = job.parallel.tensor_parallel.embedding ? choice.tensor : 1;
  const auto rows = static_cast<double>(model::padded_vocab_rows(job.model, ranks));
  return std::ceil(rows / static_cast<double>(ranks));
}

void count_parameters(LayerBytes& layers, const JobSpec& job, const choice::LayoutChoice& choice) {
  const ModelSpec& model = job.model;
  const model::ParameterCounts counts =
      model::parameter_counts(model, job.parallel.tensor_parallel);
  const auto of_rank = [&](const model::ParameterSum& sum) {
    return sum.of_rank(choice.tensor, model.num_kv_heads);
  };
  layers.block_parameters = of_rank(counts.block);
  if (model::is_list(model)) {
    layers.head_parameters = of_rank(counts.head);
    layers.largest_layer_parameters = std::max(layers.block_parameters, layers.head_parameters);
    return;
  }
  if (model.decoder_layers > 0) layers.cross_block_parameters = of_rank(counts.cross_block);
  if (model.num_experts > 0) {
    layers.moe_block_parameters = of_rank(counts.moe_block);
    layers.expert_parameters = static_cast<double>(model.num_experts) / choice.expert *
                               counts.expert.of_rank(std::max(1, choice.expert_tensor), 1);
  }
  const double rows = vocabulary_rows(job, choice);
  const auto h = static_cast<double>(model.hidden_size);
  const double unpadded = of_rank(counts.vocabulary);
  layers.embedding_parameters = of_rank(counts.embedding) - unpadded + rows * h;
  layers.head_parameters = of_rank(counts.head);
  if (!model.tied_embeddings) layers.head_parameters += rows * h - unpadded;
  if (model.tied_embeddings && choice.pipeline > 1) layers.head_parameters += rows * h;
  if (counts.mtp_blocks > 0) {
    layers.mtp_parameters = of_rank(counts.mtp_block) -
                            of_rank(counts.mtp_has_experts ? counts.moe_block : counts.block);
  }
  layers.largest_layer_parameters = std::max(
      {layers.largest_block_parameters(), layers.embedding_parameters, layers.head_parameters});
  count_persistent(layers, job, choice);
}

bool holds_head(const choice::LayoutChoice& choice, int64_t stage) {
  return choice.schedule == PipelineKind::kZbV ? stage == 0 : stage + 1 == choice.pipeline;
}

StageBlocks stage_blocks(const ModelSpec& model, const choice::LayoutChoice& choice, int64_t stage,
                         int64_t frozen) {
  if (!choice.partition.empty() || frozen > 0) {
    return listed_stage_blocks(model, choice, stage, frozen);
  }
  const int64_t all = model::block_count(model);
  const int64_t count = choice::stage_layers(choice, all, stage);
  const bool alike = model.decoder_layers == 0 && model.num_experts == 0;
  if (alike) return {static_cast<double>(count), 0};
  return counted_blocks(model, blocks_before(choice, all, stage), count);
}

}  // namespace smp::cost
