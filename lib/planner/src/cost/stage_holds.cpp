#include "cost/stage_holds.h"

#include <algorithm>

#include "smp/plan/layout/partition.h"
#include "smp/plan/schedule/schedule_shape.h"

namespace smp::cost {
namespace {

// Of each chunk, as listed, or else as the choice deals them to stages.
std::vector<int64_t> chunk_blocks(int64_t all, const choice::LayoutChoice& choice,
                                  const schedule::ScheduleShape& shape) {
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

void add_blocks(StageHolds& holds, const LayerKinds& kinds, int64_t before, int64_t count) {
  kinds.count_blocks(before, before + count, holds.of_kind);
  holds.blocks += static_cast<double>(count);
  if (count > 0 && before < kinds.frozen_blocks()) ++holds.frozen_chunks;
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

// With the ends of the model, if it has them.
StageHolds without_blocks(const LayerKinds& kinds, const choice::LayoutChoice& choice,
                          int64_t stage) {
  StageHolds holds;
  holds.of_kind.resize(kinds.size());
  holds.embedding = stage == 0;
  holds.head = holds_head(choice, stage);
  if (holds.embedding && kinds.has_embedding()) holds.of_kind.front() = 1;
  if (!holds.head) return holds;
  holds.of_kind.back() = 1;
  holds.further_tokens = static_cast<double>(kinds.further_tokens());
  if (kinds.further_tokens() > 0) holds.of_kind[kinds.end_blocks()] = holds.further_tokens;
  return holds;
}

}  // namespace

bool holds_head(const choice::LayoutChoice& choice, int64_t stage) {
  return choice.schedule == PipelineKind::kZbV ? stage == 0 : stage + 1 == choice.pipeline;
}

bool counts_chunks(const LayerKinds& kinds, const choice::LayoutChoice& choice) {
  if (!choice.partition.empty()) return true;
  return kinds.differ_by_stage() && choice::shape_of(choice).chunks() > 1;
}

StageHolds stage_holds(const LayerKinds& kinds, const choice::LayoutChoice& choice, int64_t stage) {
  if (counts_chunks(kinds, choice)) {
    return all_stage_holds(kinds, choice).at(static_cast<size_t>(stage));
  }
  StageHolds holds = without_blocks(kinds, choice, stage);
  add_blocks(holds, kinds, blocks_before(choice, kinds.blocks(), stage),
             choice::stage_layers(choice, kinds.blocks(), stage));
  return holds;
}

std::vector<StageHolds> all_stage_holds(const LayerKinds& kinds,
                                        const choice::LayoutChoice& choice) {
  std::vector<StageHolds> stages;
  for (int64_t stage = 0; stage < choice.pipeline; ++stage) {
    stages.push_back(counts_chunks(kinds, choice) ? without_blocks(kinds, choice, stage)
                                                  : stage_holds(kinds, choice, stage));
  }
  if (!counts_chunks(kinds, choice)) return stages;
  const schedule::ScheduleShape shape = choice::shape_of(choice);
  int64_t before = 0, position = 0;
  for (const int64_t count : chunk_blocks(kinds.blocks(), choice, shape)) {
    const int64_t stage = schedule::place_of_chunk(shape, position++).stage;
    add_blocks(stages[static_cast<size_t>(stage)], kinds, before, count);
    before += count;
  }
  return stages;
}

StageHolds stage_holds(const LayerKinds& kinds, const layout::StageLayers& layers) {
  StageHolds holds;
  holds.of_kind.resize(kinds.size());
  auto layer = layers.layers.begin();
  for (const int64_t count : layers.chunk_layers) {
    bool has_frozen = false;
    for (int64_t i = 0; i < count; ++i, ++layer) {
      const size_t kind = kinds.of(*layer);
      ++holds.of_kind[kind];
      has_frozen |= kinds[kind].is_frozen;
      holds.embedding |= layer->index == 0;
      holds.head |= model::makes_loss(layer->kind);
      if (!model::is_transformer_block(layer->kind)) continue;
      ++(kind < kinds.end_blocks() ? holds.blocks : holds.further_tokens);
    }
    holds.frozen_chunks += has_frozen ? 1 : 0;
  }
  return holds;
}

StageParameters parameters_of(const LayerBytes& layers, const StageHolds& holds) {
  StageParameters sum;
  for (size_t kind = 0; kind < holds.of_kind.size(); ++kind) {
    const double count = holds.of_kind[kind];
    const StageParameters& each = layers.of_kind[kind].adds;
    sum.dense += count * each.dense;
    sum.experts += count * each.experts;
    sum.frozen += count * each.frozen;
    sum.frozen_experts += count * each.frozen_experts;
    sum.frozen_bytes += count * each.frozen_bytes;
    sum.frozen_expert_bytes += count * each.frozen_expert_bytes;
  }
  return sum;
}

double block_parameters(const LayerBytes& layers, const StageHolds& holds) {
  double sum = 0;
  for (size_t kind = layers.kinds->first_block(); kind < layers.kinds->head(); ++kind) {
    const KindBytes& each = layers.of_kind[kind];
    sum += holds.of_kind[kind] * (each.all_parameters() - each.further_token);
  }
  return sum;
}

}  // namespace smp::cost
