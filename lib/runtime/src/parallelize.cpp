#include "smp/runtime/parallelize.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "smp/plan/check.h"
#include "smp/plan/layout.h"
#include "smp/plan/schedule_of_plan.h"

namespace smp {

ParallelModel apply_parallelism(const Plan& plan, Communicator& world, MemoryLedger& ledger,
                                std::shared_ptr<Gpu> gpu, int64_t ranks_of_host,
                                Communicator* among_gpus) {
  SMP_CHECK_EQ(static_cast<int64_t>(world.size()), plan.degrees.world());
  ParallelModel model;
  const ClusterSpec& cluster = plan.job.cluster;
  const int64_t sharing = ranks_of_host > 0 ? ranks_of_host : cluster.processes_per_host;
  model.host = std::make_unique<MemoryLedger>(
      world.rank(), cluster.host_memory_bytes / std::max<int64_t>(1, sharing), MemoryPool::kHost);
  model.gpu = std::move(gpu);
  // A GPU charges what it holds itself: what is left is the host's.
  std::optional<LedgerScope> on_host;
  if (model.gpu) on_host.emplace(*model.host);

  // Groups first: everything below asks them who its peers are.
  model.groups = std::make_unique<RankGroups>(plan, world, among_gpus);
  {
    const ItemScope item("shared segments");
    model.segments = MemoryCharge(model.gpu ? *model.host : ledger, MemoryCategory::kCommunication,
                                  model.groups->segment_bytes());
  }

  // Pipeline, then tensor parallelism: the layout picks this stage's layers and cuts each of their
  // parameters. Sharding comes last, because it cuts the buckets of what is left.
  RankLayout layout = rank_layout(plan, world.rank());
  const Coord coord = layout.coord;
  const std::vector<LayerSpec> layers = layout.layers;

  // One flat buffer of weights and one of gradients, so that a bucket is a range and no reduction
  // copies; both where the peers can read them, but for shards of weights that live on the host.
  // Weights are drawn by their place in the whole model: the layout does not change them.
  const auto pool = [&](const std::optional<bool>& offloaded) {
    return offloaded == true ? model.host.get() : nullptr;
  };
  const ParallelSpec& parallel = plan.job.parallel;
  model.parameters = std::make_unique<FlatParameters>(
      std::move(layout), compute_dtype(plan), world.size() > 1 ? &model.groups->world() : nullptr,
      pool(parallel.offload_parameters), model.gpu.get());
  model.parameters->initialise(plan.job.training.seed);

  // Layers compute on views of those buffers and talk to their tensor group themselves.
  const TensorParallel tensor{model.groups->find(Axis::kTensor), plan.degrees.tensor, coord.tensor,
                              plan.job.parallel.sequence_parallel.value_or(false),
                              plan.job.parallel.tensor_parallel};
  for (const LayerSpec& layer : layers) {
    model.layers.push_back(
        make_layer(plan.job.model, layer, model.parameters->layer_parameters(layer.index), tensor));
  }

  // The optimizer after the weights: master weights start as they are, and its state covers this
  // rank's part of each bucket only.
  model.optimizer =
      std::make_unique<Optimizer>(plan.job.training.optimizer, plan.degrees, *model.parameters,
                                  pool(parallel.offload_optimizer));

  const TrainingSpec& training = plan.job.training;
  if (training.precision == Precision::kFp16) model.loss_scale = LossScale(training.loss_scale);

  // The schedule last: it names layers and buckets that now exist.
  Schedule schedule = make_schedule(schedule_parameters(plan));
  model.actions = std::move(schedule.actions.at(static_cast<size_t>(coord.pipeline)));
  return model;
}

}  // namespace smp
