#include "smp/plan/layout/schedule_of_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <string>

#include "layout/bucket_cutter.h"
#include "layout/reduction_pace.h"
#include "smp/plan/base/check.h"
#include "smp/plan/layout/layout.h"
#include "smp/plan/layout/rank_groups.h"
#include "smp/plan/mesh/mesh.h"
#include "smp/plan/model/layers.h"
#include "smp/plan/model/router_loads.h"
#include "smp/plan/schedule/schedule.h"
#include "smp/plan/spec/bucket_size.h"
#include "smp/plan/spec/checkpoint_strategy.h"
#include "smp/plan/spec/plan.h"

// The shape of the plan's schedule.
namespace smp::layout {

schedule::ScheduleShape schedule_shape(const Plan& plan) {
  const ParallelSpec& parallel = plan.job.parallel;
  SMP_CHECK(parallel.pipeline && parallel.active_microbatches && plan.job.training.microbatches);
  return {.kind = *parallel.pipeline,
          .stages = plan.degrees.pipeline,
          .virtual_stages = parallel.virtual_pipeline_degree.value_or(1),
          .microbatches = *plan.job.training.microbatches,
          .active_microbatches = *parallel.active_microbatches};
}

namespace {

// The first `recompute_layers` blocks of the stage save only their input, or the input of the run
// of blocks that share a checkpoint. With offloading the saved tensors of blocks are on the host.
void set_memory_rules(const Plan& plan, const StageLayers& stage, size_t layers,
                      schedule::ScheduleParameters& parameters) {
  const ParallelSpec& parallel = plan.job.parallel;
  parameters.selective = parallel.recompute == Recompute::kSelective;
  const bool recomputes = parameters.selective || parallel.recompute == Recompute::kFull;
  const bool offloads = parallel.offload_activations.value_or(false);
  if (recomputes) parameters.checkpoints.resize(layers, -1);
  if (offloads) parameters.offloaded.resize(layers, false);
  const auto group = layers_per_checkpoint(parallel.activation_checkpointing_strategy);
  SMP_CHECK(group && (*group == 1 || !parameters.selective));
  int64_t left = parallel.recompute_layers.value_or(static_cast<int64_t>(layers));
  auto layer = stage.layers.begin();
  for (const int64_t count : stage.chunk_layers) {
    int64_t sharing = 0, first = -1;  // of the run under way
    for (const auto end = layer + count; layer != end; ++layer) {
      if (!model::is_transformer_block(layer->kind)) {
        sharing = 0;
        continue;
      }
      const auto index = static_cast<size_t>(layer->index);
      if (offloads) parameters.offloaded[index] = true;
      if (!recomputes || left-- <= 0) continue;
      if (sharing == 0) first = layer->index;
      parameters.checkpoints[index] = first;
      sharing = (sharing + 1) % *group;
    }
  }
}

bool goes_through_host(const Plan& plan, mesh::Axis axis) {
  return plan.job.cluster.device == DeviceKind::kCuda &&
         collectives_of(plan.job.parallel, axis).value_or(CollectivesKind::kNccl) !=
             CollectivesKind::kNccl;
}

bool reduces_through_host(const Plan& plan) {
  if (state_share(plan).shards == 1) return goes_through_host(plan, mesh::Axis::kData);
  return goes_through_host(plan, mesh::Axis::kShard) ||
         goes_through_host(plan, mesh::Axis::kReplica);
}

}  // namespace

schedule::ScheduleParameters schedule_parameters(const Plan& plan) {
  schedule::ScheduleParameters parameters;
  parameters.shape = schedule_shape(plan);
  const StateShare state = state_share(plan);
  parameters.sharded = state.shards > 1 && !shards_weights(plan);
  if (parameters.sharded && goes_through_host(plan, mesh::Axis::kShard)) {
    parameters.most_gathers = kMostGathers;
  }
  if (reduces_through_host(plan)) parameters.most_reductions = kMostReductions;
  parameters.early_updates = !updates_wait(plan.job.training);
  parameters.prefetch_layers = plan.job.parallel.prefetch_layers;
  parameters.tied_across_stages = tied_across_stages(plan);
  if (!parameters.tied_across_stages) {
    for (const model::LayerSpec& layer : model::layers_of(plan.job.model)) {
      if (model::reuses_embedding(plan.job.model, layer)) {
        parameters.tied_layers.push_back(layer.index);
      }
    }
  }
  parameters.kv_replicated = kv_copies(plan) > 1;
  parameters.sums_router_loads = model::router_loads(plan.job.model) > 0;
  parameters.loading_horizon = plan.job.parallel.activation_loading_horizon;
  std::vector<StageLayers> stages = layers_by_stage(plan);
  size_t all_layers = 0;
  for (const StageLayers& stage : stages) all_layers += stage.layers.size();
  BucketCutter cutter(plan, 0);
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    const StageBuckets layout = cutter.cut(std::move(stages[stage]));
    std::vector<std::vector<int64_t>>& chunks = parameters.layers.emplace_back();
    auto layer = layout.layers.begin();
    for (const int64_t count : layout.chunk_layers) {
      std::vector<int64_t>& layers = chunks.emplace_back();
      for (int64_t i = 0; i < count; ++i) layers.push_back((layer++)->index);
      parameters.head_layer = std::max(parameters.head_layer, layers.back());
    }
    set_memory_rules(plan, layout, all_layers, parameters);
    std::vector<int64_t>& first_layers = parameters.bucket_first_layers.emplace_back();
    std::vector<int64_t>& last_layers = parameters.bucket_last_layers.emplace_back();
    std::vector<int64_t>& elements = parameters.bucket_elements.emplace_back();
    if (state.ranks() == 1) continue;
    parameters.persistent_buckets.push_back(layout.persistent_bucket);
    if (stage == 0) parameters.table_persists = layout.opens_with_persistent;
    const std::span<const Bucket> buckets(layout.buckets.data(), layout.scheduled);
    for (const Bucket& bucket : buckets) {
      first_layers.push_back(bucket.first_layer);
      last_layers.push_back(bucket.last_layer);
      const int64_t experts =
          bucket.experts < 0 ? 0 : layout.buckets[static_cast<size_t>(bucket.experts)].size();
      elements.push_back(bucket.size() + experts);
    }
    if (layout.shards_gradients()) {
      std::vector<int32_t>& buffers = parameters.gradient_buffers.emplace_back();
      for (const Bucket& bucket : buckets) buffers.push_back(bucket.gradient_buffer);
    }
    if (layout.shards_weights()) {
      std::vector<int32_t>& buffers = parameters.weight_buffers.emplace_back();
      for (const Bucket& bucket : buckets) buffers.push_back(bucket.weight_buffer);
    }
  }
  parameters.has_replicas = state.shards > 1 && state.replicas > 1;
  if (parameters.has_replicas) {
    int64_t all = 0;
    for (const std::vector<int64_t>& elements : parameters.bucket_elements)
      all = std::accumulate(elements.begin(), elements.end(), all);
    parameters.reduced_per_computed = reduced_per_computed(plan, all);
  }
  return parameters;
}

bool counts_vary(const TrainingSpec& training) {
  return training.data_loss_mask.value_or(false) || training.data_pack != Packing::kConcatenate;
}

bool updates_wait(const TrainingSpec& training) {
  return training.optimizer.gradient_clipping > 0 || training.precision == Precision::kFp16 ||
         counts_vary(training);
}

std::optional<std::string> why_updates_wait(const TrainingSpec& training) {
  if (!updates_wait(training)) return std::nullopt;
  const double clipping = training.optimizer.gradient_clipping;
  if (clipping > 0) {
    return fmt::format("gradient_clipping ({}) needs the norm of all gradients", clipping);
  }
  if (training.precision == Precision::kFp16) {
    return "fp16's loss scale needs to know that all gradients are finite";
  }
  return "the mean over the tokens that count needs their number in the global batch";
}

}  // namespace smp::layout
