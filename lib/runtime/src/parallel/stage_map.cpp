#include "parallel/stage_map.h"

#include <algorithm>

#include "smp/plan/model/layer_tensors.h"

namespace smp::parallel {

StageMap::StageMap(const JobSpec& job, const schedule::ScheduleParameters& parameters,
                   const layout::RankLayout& layout) {
  const schedule::ScheduleShape& shape = parameters.shape;
  const int64_t stage = layout.coord.pipeline;
  defers_weight_gradients_ = smp::schedule::defers_weight_gradients(shape.kind);
  // The chunk at that position of the model if it is on this stage, else -1.
  const auto here = [&](int64_t position) {
    if (position < 0 || position >= shape.stages * shape.chunks()) return int64_t{-1};
    const schedule::ChunkPlace place = schedule::place_of_chunk(shape, position);
    return place.stage == stage ? place.chunk : int64_t{-1};
  };
  first_layer_ = layout.layers.front().index;
  int64_t last_layer = first_layer_;
  for (const model::LayerSpec& layer : layout.layers) {
    first_layer_ = std::min(first_layer_, layer.index);
    last_layer = std::max(last_layer, layer.index);
  }
  places_.resize(static_cast<size_t>(last_layer - first_layer_ + 1));
  size_t in_stage = 0;
  for (size_t chunk = 0; chunk < layout.chunk_layers.size(); ++chunk) {
    const int64_t position =
        schedule::position_of_chunk(shape, {stage, static_cast<int64_t>(chunk)});
    const auto count = static_cast<size_t>(layout.chunk_layers[chunk]);
    const size_t opening = in_stage;
    bool reads_documents = false;
    for (size_t i = 0; i < count; ++i, ++in_stage) {
      const model::LayerSpec& layer = layout.layers[in_stage];
      LayerPosition& place = places_[static_cast<size_t>(layer.index - first_layer_)];
      place.in_stage = in_stage;
      place.in_chunk = i;
      place.opens_chunk = i == 0;
      place.closes_chunk = i + 1 == count;
      place.is_first = layer.index == 0;
      place.makes_loss = makes_loss(layer.kind);
      place.reads = layer.reads;
      if (place.opens_chunk) place.takes_from = here(position - 1);
      if (place.closes_chunk) place.hands_to = here(position + 1);
      const int64_t checkpoint = schedule::checkpoint_of(parameters, layer.index);
      place.drops_recomputable = checkpoint >= 0 && parameters.selective;
      place.is_recomputed = checkpoint >= 0 && !parameters.selective;
      place.keeps_input = place.is_recomputed && checkpoint == layer.index;
      place.feeds_recompute = place.is_recomputed && !place.closes_chunk &&
                              schedule::checkpoint_of(parameters, layer.index + 1) == checkpoint;
      LayerPosition& first =
          places_[static_cast<size_t>(layout.layers[opening].index - first_layer_)];
      if (place.reads &&
          std::ranges::find(first.chunk_reads, *place.reads) == first.chunk_reads.end()) {
        first.chunk_reads.push_back(*place.reads);
      }
      if (!reads_documents && model::reads_document_starts(job, layer)) {
        reads_documents = true;
        first.chunk_reads.push_back(model::BatchField::kDocumentStarts);
      }
    }
  }
}

}  // namespace smp::parallel
