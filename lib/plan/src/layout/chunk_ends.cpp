#include "smp/plan/layout/chunk_ends.h"

#include "smp/plan/layout/layout.h"
#include "smp/plan/spec/plan.h"

namespace smp::layout {

model::LayerCall layer_call(const Plan& plan, int64_t tensor_rank, int64_t context_rank) {
  const TrainingSpec& training = plan.job.training;
  const mesh::Degrees& degrees = plan.degrees;
  return {.micro_batch = training.micro_batch.value(),
          .sequence_length = training.sequence_length / degrees.context,
          .tensor_degree = degrees.tensor,
          .tensor_rank = tensor_rank,
          .dtype = compute_dtype(plan),
          .sequence_parallel = plan.job.parallel.sequence_parallel.value_or(false),
          .kinds = plan.job.parallel.tensor_parallel,
          .fusions = training.fusions,
          .context = {.ring = degrees.ring(),
                      .ring_rank = context_rank / degrees.exchange,
                      .exchange = degrees.exchange,
                      .exchange_rank = context_rank % degrees.exchange},
          .expert_degree = shares_experts(plan) ? degrees.expert : 1};
}

std::vector<ChunkEnds> chunk_ends(const Plan& plan, const RankLayout& layout) {
  const ModelSpec& model = plan.job.model;
  const std::vector<model::LayerSpec> all = model::layers_of(model);
  const model::LayerCall call = layer_call(plan, layout.coord.tensor, layout.coord.context);
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
