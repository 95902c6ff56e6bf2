#include "smp/runtime/parallel/parallelize.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "smp/plan/base/check.h"
#include "smp/plan/layout/chunk_ends.h"
#include "smp/plan/layout/layout.h"
#include "smp/plan/layout/schedule_of_plan.h"

namespace smp::parallel {

ParallelModel apply_parallelism(const Plan& plan, comm::Communicator& world,
                                ledger::MemoryLedger& ledger, std::shared_ptr<gpu::Gpu> gpu,
                                int64_t ranks_of_host, comm::Communicator* among_gpus) {
  SMP_CHECK_EQ(static_cast<int64_t>(world.size()), plan.degrees.world());
  ParallelModel model;
  const ClusterSpec& cluster = plan.job.cluster;
  const int64_t sharing = ranks_of_host > 0 ? ranks_of_host : cluster.processes_per_host;
  model.host = std::make_unique<ledger::MemoryLedger>(
      world.rank(), cluster.host_memory_bytes / std::max<int64_t>(1, sharing),
      ledger::MemoryPool::kHost);
  model.gpu = std::move(gpu);
  // With a GPU, GpuLedger charges device memory; this ledger counts host memory.
  std::optional<ledger::LedgerScope> on_host;
  if (model.gpu) on_host.emplace(*model.host);

  // Groups first: everything below uses them.
  model.groups = std::make_unique<RankGroups>(plan, world, among_gpus);
  {
    const ledger::ItemScope item("shared segments");
    model.segments =
        ledger::MemoryCharge(model.gpu ? *model.host : ledger, MemoryCategory::kCommunication,
                             model.groups->segment_bytes());
  }

  // Pipeline, then tensor parallelism: the layout picks this stage's layers and splits each of
  // their parameters. Sharding comes last, because it splits the resulting buckets.
  layout::RankLayout layout = layout::rank_layout(plan, world.rank());
  const mesh::Coord coord = layout.coord;
  const std::vector<model::LayerSpec> layers = layout.layers;

  // One flat buffer of weights and one of gradients, so that a bucket is a range and a reduction
  // copies nothing. Both are in memory that the peers can read, except weight shards in host
  // memory. Weights are drawn by their position in the whole model, so the layout does not change
  // them.
  const auto pool = [&](const std::optional<bool>& offloaded) {
    return offloaded == true ? model.host.get() : nullptr;
  };
  const ParallelSpec& parallel = plan.job.parallel;
  model.parameters = std::make_unique<parameters::FlatParameters>(
      std::move(layout), compute_dtype(plan), world.size() > 1 ? &model.groups->world() : nullptr,
      pool(parallel.offload_parameters), model.gpu.get());
  model.parameters->initialise(plan.job.training.seed);

  // Layers compute on views of those buffers and call the collectives of their tensor and context
  // groups.
  const kernels::TensorParallel tensor{
      model.groups->find(mesh::Axis::kTensor), plan.degrees.tensor, coord.tensor,
      plan.job.parallel.sequence_parallel.value_or(false), plan.job.parallel.tensor_parallel};
  const model::LayerCall call = layout::layer_call(plan, coord.tensor, coord.context);
  const kernels::ContextParallel context{call.context, model.groups->find(mesh::Axis::kRing),
                                         model.groups->find(mesh::Axis::kExchange)};
  const kernels::ExpertParallel experts{model.groups->find(mesh::Axis::kExpert),
                                        plan.degrees.expert};
  const auto programs = layers::make_program_cache(plan.job.model, plan.job.training.fusions);
  for (const model::LayerSpec& layer : layers) {
    model.layers.push_back(layers::make_layer(layer,
                                              model.parameters->layer_parameters(layer.index),
                                              tensor, programs, context, experts));
  }

  // The optimizer after the weights: master weights are copies of them. Its state covers only this
  // rank's part of each bucket.
  model.optimizer = std::make_unique<optim::Optimizer>(
      plan.job.training.optimizer, *model.parameters, pool(parallel.offload_optimizer),
      plan.job.model.router_correction_rate);

  const TrainingSpec& training = plan.job.training;
  if (training.precision == Precision::kFp16)
    model.loss_scale = optim::LossScale(training.loss_scale);

  // The schedule last: it refers to layers and buckets.
  schedule::Schedule schedule = schedule::make_schedule(layout::schedule_parameters(plan));
  model.actions = std::move(schedule.actions.at(static_cast<size_t>(coord.pipeline)));
  return model;
}

}  // namespace smp::parallel
