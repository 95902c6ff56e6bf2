#include "smp/plan/layout/chunk_ends.h"

#include "smp/plan/layout/layout.h"
#include "smp/plan/spec/plan.h"

namespace smp::layout {

model::LayerCall layer_call(const Plan& plan, int64_t tensor_rank) {
  const TrainingSpec& training = plan.job.training;
  return {training.micro_batch.value(),
          training.sequence_length,
          plan.degrees.tensor,
          tensor_rank,
          compute_dtype(plan),
          plan.job.parallel.sequence_parallel.value_or(false),
          plan.job.parallel.tensor_parallel,
          training.fusions};
}

std::vector<ChunkEnds> chunk_ends(const Plan& plan, const RankLayout& layout) {
  const ModelSpec& model = plan.job.model;
  const std::vector<model::LayerSpec> all = model::layers_of(model);
  const model::LayerCall call = layer_call(plan, layout.coord.tensor);
  std::vector<ChunkEnds> ends;
  auto layer = layout.layers.begin();
  for (const int64_t count : layout.chunk_layers) {
    ChunkEnds& of_chunk = ends.emplace_back();
    if (layer->index > 0) {
      of_chunk.takes =
          model::outputs_of(model, all.at(static_cast<size_t>(layer->index - 1)), call);
    }
    layer += count;
    of_chunk.hands = model::outputs_of(model, *(layer - 1), call);
  }
  return ends;
}

}  // namespace smp::layout
