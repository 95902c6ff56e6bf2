#include "time/action_seconds.h"

#include <map>
#include <numeric>

#include "cost/rank_order.h"
#include "cost/stage_holds.h"
#include "cost/state_bytes.h"
#include "links/link_model.h"
#include "links/rate.h"
#include "memory/stage_blocks.h"
#include "smp/plan/layout/layout.h"
#include "time/gradient_messages.h"
#include "time/step_messages.h"

namespace smp::time {
namespace {

class ActionPrices {
 public:
  ActionPrices(const Plan& plan, const choice::LayoutChoice& choice, const cost::LayerCosts& costs,
               const schedule::ScheduleParameters& parameters)
      : plan_(plan),
        job_(plan.job),
        choice_(choice),
        costs_(costs),
        parameters_(parameters),
        on_cpus_(plan.job.cluster.device == DeviceKind::kCpu),
        width_(cost::element_bytes(choice.precision)) {}

  StepActionSeconds all(const std::vector<layout::StageLayers>& stages) {
    StepActionSeconds seconds;
    seconds.offloads_beside = !on_cpus_;
    seconds.reduce_slowdown =
        slowdown_of(job_, choice_.shard == 1 ? mesh::Axis::kData : mesh::Axis::kShard);
    seconds.replicas_slowdown = slowdown_of(job_, mesh::Axis::kReplica);
    const double send = stage_send_s(job_, choice_);
    seconds.layers = layer_actions(stages);
    for (size_t i = 0; i < stages.size(); ++i) {
      const cost::StageHolds holds = cost::stage_holds(*costs_.bytes.kinds, stages[i]);
      const StepTransfers transfers =
          step_transfers(job_, choice_, cost::parameters_of(costs_.bytes, holds));
      StageActionSeconds& stage = seconds.stages.emplace_back();
      stage.messages.assign(stages[i].chunk_layers.size(), {send, send});
      stage.update_all = transfers.optimizer_s + transfers.offload_s;
      if (i < parameters_.bucket_elements.size()) {
        stage.buckets = bucket_actions(parameters_.bucket_elements[i], transfers);
      }
      seconds.agree = transfers.agree_s;
      seconds.tied_gradient = seconds.tied_weight = transfers.tied_s / 2;
    }
    return seconds;
  }

 private:
  std::vector<LayerActionSeconds> layer_actions(const std::vector<layout::StageLayers>& stages) {
    std::vector<LayerActionSeconds> of_kind;
    for (size_t kind = 0; kind < costs_.seconds.of_kind.size(); ++kind) {
      of_kind.push_back(layer_action(kind));
    }
    std::vector<LayerActionSeconds> layers;
    for (const layout::StageLayers& stage : stages) {
      for (const model::LayerSpec& layer : stage.layers) {
        const auto index = static_cast<size_t>(layer.index);
        if (layers.size() <= index) layers.resize(index + 1);
        layers[index] = of_kind[costs_.seconds.kinds->of(layer)];
      }
    }
    return layers;
  }

  LayerActionSeconds layer_action(size_t kind) {
    const cost::CallSeconds& call = costs_.seconds.of_kind[kind];
    LayerActionSeconds seconds;
    seconds.forward = call.forward();
    seconds.weight = schedule::defers_weight_gradients(choice_.schedule)
                         ? call.matmul_backward * call.weights_share
                         : 0;
    seconds.recompute = call.recompute;
    seconds.backward = call.backward() - call.recompute - seconds.weight;
    if (parameters_.kv_replicated) seconds.reduce_kv = reduce_kv_s();
    if (choice_.offload_activations) {
      const double bytes = memory::kept_by_call(costs_.bytes.of_kind[kind].call, choice_.recompute);
      // On CPUs it is read, and written to the other pool.
      seconds.offload = on_cpus_ ? links::over(2 * bytes, job_.cluster.memory_bytes_per_s)
                                 : links::over(bytes, job_.cluster.host_link_bytes_per_s);
    }
    return seconds;
  }

  // Keys' and values' weights of one block, over the tensor ranks that hold the same heads.
  double reduce_kv_s() {
    if (kv_s_ >= 0) return kv_s_;
    const layout::RankLayout layout = layout::rank_layout(plan_, 0);
    double elements = 0;
    int64_t layer = -1;
    for (const layout::PlacedParameter& parameter : layout.parameters) {
      if (parameter.spec.split != model::TensorSplit::kKvHeads) continue;
      if (layer >= 0 && parameter.layer != layer) break;
      layer = parameter.layer;
      elements += static_cast<double>(parameter.box.size());
    }
    const mesh::Mesh mesh(plan_.degrees, job_.parallel.placement_strategy);
    const std::vector<int64_t> ranks = mesh.group(0, mesh::Axis::kKvHead, layout::kv_copies(plan_));
    kv_s_ = links::all_reduce_s(elements * gradient_width(job_, choice_),
                                links::placement_of(ranks, job_.cluster.processes_per_host),
                                job_.cluster, links::exchange_of(job_, mesh::Axis::kKvHead));
    return kv_s_;
  }

  std::vector<BucketActionSeconds> bucket_actions(const std::vector<int64_t>& elements,
                                                  const StepTransfers& transfers) {
    const auto all =
        static_cast<double>(std::accumulate(elements.begin(), elements.end(), int64_t{0}));
    const double norm = transfers.optimizer_s * transfers.norm_share;
    const double update = transfers.optimizer_s - norm + transfers.offload_s;
    std::vector<BucketActionSeconds> buckets;
    for (const int64_t own : elements) {
      BucketActionSeconds bucket = calls_of(own);
      const double share = all > 0 ? static_cast<double>(own) / all : 0;
      bucket.norm = share * norm;
      bucket.update = share * update;
      buckets.push_back(bucket);
    }
    return buckets;
  }

  const BucketActionSeconds& calls_of(int64_t own) {
    const auto [known, is_new] = calls_.try_emplace(own);
    if (!is_new) return known->second;
    BucketActionSeconds& bucket = known->second;
    const auto elements = static_cast<double>(own);
    const cost::StateRanks states = cost::state_ranks(job_, choice_);
    if (states.all() > 1) {
      const ReductionSeconds reduction = reduction_s(job_, choice_, elements, 1);
      bucket.reduce = states.shards == 1 ? reduction.across : reduction.in_shards;
      bucket.reduce_replicas = states.shards == 1 ? 0 : reduction.across;
    }
    if (states.shards > 1) bucket.gather = gather_bucket_s(elements);
    return bucket;
  }

  double gather_bucket_s(double elements) const {
    const double gather = gather_s(job_, choice_, elements, width_, 1);
    if (!choice_.offload_parameters) return gather;
    const double own = elements * width_ / choice_.shard;
    return on_cpus_ ? gather + links::over(2 * own, job_.cluster.memory_bytes_per_s)
                    : std::max(gather, links::over(own, job_.cluster.host_link_bytes_per_s));
  }

  const Plan& plan_;
  const JobSpec& job_;
  const choice::LayoutChoice& choice_;
  const cost::LayerCosts& costs_;
  const schedule::ScheduleParameters& parameters_;
  const bool on_cpus_;
  const double width_;
  double kv_s_ = -1;
  std::map<int64_t, BucketActionSeconds> calls_;  // by elements
};

}  // namespace

StepActionSeconds action_seconds(const Plan& plan, const choice::LayoutChoice& choice,
                                 const cost::LayerCosts& costs,
                                 const schedule::ScheduleParameters& parameters,
                                 const std::vector<layout::StageLayers>& stages) {
  return ActionPrices(plan, choice, costs, parameters).all(stages);
}

}  // namespace smp::time
