#include "smp/plan/layout/stage_layers.h"

#include "smp/plan/layout/partition.h"
#include "smp/plan/model/parameter_counts.h"
#include "smp/plan/spec/plan.h"

namespace smp::layout {

schedule::ScheduleShape chunks_of(const Plan& plan) {
  const ParallelSpec& parallel = plan.job.parallel;
  return {.kind = parallel.pipeline.value_or(PipelineKind::kInterleaved),
          .stages = plan.degrees.pipeline,
          .virtual_stages = parallel.virtual_pipeline_degree.value_or(1)};
}

std::vector<StageLayers> layers_by_stage(const Plan& plan) {
  const schedule::ScheduleShape shape = chunks_of(plan);
  const std::vector<model::LayerSpec> all = model::layers_of(plan.job.model);
  const std::vector<int64_t> blocks =
      blocks_per_chunk(shape, model::block_count(plan.job.model), plan.job.parallel.partition);
  std::vector<StageLayers> stages(static_cast<size_t>(shape.stages));
  auto next = all.begin();
  // Chunks of a stage follow each other along the model as they do on the stage.
  for (int64_t position = 0; position < shape.stages * shape.chunks(); ++position) {
    int64_t count = blocks[static_cast<size_t>(position)];
    // A list has no embedding: its first layer is a block.
    if (position == 0 && all.front().kind == model::LayerKind::kEmbedding) ++count;
    if (position + 1 == shape.stages * shape.chunks()) count = all.end() - next;
    StageLayers& stage =
        stages[static_cast<size_t>(schedule::place_of_chunk(shape, position).stage)];
    stage.layers.insert(stage.layers.end(), next, next + count);
    stage.chunk_layers.push_back(count);
    next += count;
  }
  return stages;
}

}  // namespace smp::layout
