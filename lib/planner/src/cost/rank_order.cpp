#include "cost/rank_order.h"

#include <algorithm>
#include <string_view>

#include "cost/stage_holds.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/plan/mesh/collective.h"
#include "smp/plan/model/layers.h"
#include "smp/plan/spec/plan.h"

namespace smp::cost {
namespace {

// Letters from the slowest axis to the fastest.
std::string_view order_of(const choice::LayoutChoice& choice, const JobSpec& job) {
  using Strategy = choice::PlacementStrategy;
  if (choice.placement == Strategy::kSpread) return "TPD";
  if (choice.placement != Strategy::kCluster && choice.placement != Strategy::kDPT) {
    return name_of(choice.placement);
  }
  return framework::framework_model(job).rank_order;
}

// Ranks between two neighbours on an axis: the product of the faster ones.
int64_t stride_of(char axis, const choice::LayoutChoice& choice, const JobSpec& job) {
  int64_t stride = 1;
  const std::string_view order = order_of(choice, job);
  for (size_t i = order.size(); i-- > 0 && order[i] != axis;) {
    if (order[i] == 'T') stride *= int64_t{choice.tensor} * choice.context;
    if (order[i] == 'P') stride *= choice.pipeline;
    if (order[i] == 'D') stride *= choice.data();
  }
  return stride;
}

// Accelerators between which a group's messages cross no network: those of a host, or of the hosts
// of one NVLink.
int64_t on_one_link(const ClusterSpec& cluster) {
  return std::max(cluster.processes_per_host, cluster.nvlink_domain);
}

// Data-parallel ranks, and the context ranks beside each of them where these are in the group of so
// many as well.
struct DataRanks {
  int64_t count = 1, stride = 1;
};
links::Placement beside_context(const choice::LayoutChoice& choice, const JobSpec& job,
                                const DataRanks& data, int64_t ranks) {
  const links::Placement alone =
      links::placement_of(data.count, data.stride, on_one_link(job.cluster));
  if (ranks == data.count) return alone;
  const links::Placement context = context_placement(choice, job);
  return {ranks, alone.hosts * context.hosts, alone.most_on_a_host * context.most_on_a_host};
}

}  // namespace

links::Placement tensor_placement(const choice::LayoutChoice& choice, const JobSpec& job) {
  return links::placement_of(choice.tensor, stride_of('T', choice, job), on_one_link(job.cluster));
}

links::Placement context_placement(const choice::LayoutChoice& choice, const JobSpec& job) {
  return links::placement_of(choice.context, stride_of('T', choice, job) * choice.tensor,
                             on_one_link(job.cluster));
}

links::Placement exchange_placement(const choice::LayoutChoice& choice, const JobSpec& job) {
  return links::placement_of(choice.exchange, stride_of('T', choice, job) * choice.tensor,
                             on_one_link(job.cluster));
}

links::Placement ring_placement(const choice::LayoutChoice& choice, const JobSpec& job) {
  return links::placement_of(choice.context / choice.exchange,
                             stride_of('T', choice, job) * choice.tensor * choice.exchange,
                             on_one_link(job.cluster));
}

links::Placement expert_placement(const choice::LayoutChoice& choice, const JobSpec& job) {
  // Experts are spread over neighbours: tensor, context, then data.
  return links::placement_of(choice.expert, choice.expert_tensor, on_one_link(job.cluster));
}

links::Placement expert_states_placement(const choice::LayoutChoice& choice, const JobSpec& job) {
  const int64_t block = int64_t{choice.expert} * std::max(1, choice.expert_tensor);
  const bool shards = state_ranks(job, choice).shards > 1;
  const int64_t ranks =
      int64_t{choice.tensor} * choice.context * (shards ? choice.shard : choice.data());
  // The ranks of a stage lie behind each other where data is the fastest axis behind tensor.
  const int64_t inner = int64_t{choice.tensor} * choice.context;
  const int64_t stride = block < inner ? block * stride_of('T', choice, job)
                                       : block / inner * stride_of('D', choice, job);
  return links::placement_of(ranks / block, stride, on_one_link(job.cluster));
}

StateRanks state_ranks(const JobSpec& job, const choice::LayoutChoice& choice) {
  const int64_t context = choice.context;
  if (choice.sharding == Sharding::kNone) return {1, choice.data() * context};
  if (!framework::framework_model(job).context_shards_states) {
    return {choice.shard, choice.replica * context};
  }
  return {choice.shard * context, choice.replica};
}

links::Placement shard_placement(const choice::LayoutChoice& choice, const JobSpec& job) {
  return beside_context(choice, job, {choice.shard, stride_of('D', choice, job)},
                        state_ranks(job, choice).shards);
}

links::Placement replica_placement(const choice::LayoutChoice& choice, const JobSpec& job) {
  return beside_context(choice, job, {choice.replica, stride_of('D', choice, job) * choice.shard},
                        state_ranks(job, choice).replicas);
}

links::Placement data_placement(const choice::LayoutChoice& choice, const JobSpec& job) {
  return beside_context(choice, job, {choice.data(), stride_of('D', choice, job)},
                        choice.data() * choice.context);
}

double boundaries_between_hosts(const choice::LayoutChoice& choice, const JobSpec& job) {
  const int64_t stride = stride_of('P', choice, job);
  const int64_t on_a_host = std::max<int64_t>(1, on_one_link(job.cluster) / stride);
  // Stages of a host are neighbours; the first of each further host is reached over the network.
  return static_cast<double>((choice.pipeline - 1) / on_a_host);
}

double group_memory(const choice::LayoutChoice& choice, const JobSpec& job) {
  const int64_t tensor = stride_of('T', choice, job), stages = stride_of('P', choice, job);
  const int64_t data = stride_of('D', choice, job);
  int64_t bytes = 0;
  const auto add = [&](int64_t size, int64_t stride, bool is_world = false) {
    if (size == 1) return;
    bytes +=
        mesh::group_bytes(mesh::host_grid(size, stride, job.cluster.processes_per_host), is_world);
  };
  const auto add_placed = [&](const links::Placement& group) {
    if (group.size > 1) bytes += mesh::group_bytes({group.hosts, group.size / group.hosts}, false);
  };
  add(choice.world(), 1, true);
  add(choice.pipeline, stages);
  add(choice.tensor, tensor);
  const int64_t context = tensor * choice.tensor;
  add(choice.context / choice.exchange, context * choice.exchange);
  add(choice.exchange, context);
  const StateRanks states = state_ranks(job, choice);
  if (choice.context == 1) {
    add(choice.shard, data);
    add(choice.replica, data * choice.shard);
  } else if (states.shards == 1) {
    add_placed(data_placement(choice, job));
  } else {
    add_placed(shard_placement(choice, job));
    add(choice.replica, data * choice.shard);
  }
  if (choice.expert > 1 && exchanges_rows(job)) {
    add_placed(expert_placement(choice, job));
    add_placed(expert_states_placement(choice, job));
  }
  if (job.parallel.tensor_parallel.attention)
    add(model::kv_copies(job.model, choice.tensor), tensor);
  return static_cast<double>(bytes) + tied_group_memory(choice, job);
}

double tied_group_memory(const choice::LayoutChoice& choice, const JobSpec& job) {
  if (!model::reuses_embedding(job.model) || holds_head(choice, 0)) return 0;
  const int64_t stride = stride_of('P', choice, job) * (choice.pipeline - 1);
  return static_cast<double>(
      mesh::group_bytes(mesh::host_grid(2, stride, job.cluster.processes_per_host), false));
}

}  // namespace smp::cost
