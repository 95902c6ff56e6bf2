#include "rank_order.h"

#include <algorithm>

namespace smp {
namespace {

// Frameworks whose pipeline is the slowest axis: Megatron-LM's order tp-cp-ep-dp-pp, DeepSpeed's
// topology pipe-data-model.
bool pipeline_slowest(const JobSpec& job) {
  const Profile profile = job.parallel.profile.value_or(Profile::kSmp);
  return profile == Profile::kMegatron || profile == Profile::kDeepSpeed ||
         profile == Profile::kFsdp;
}

int64_t data_stride(const LayoutChoice& choice, const JobSpec& job) {
  if (choice.spread_placement) return 1;
  const int64_t inner = int64_t{choice.tensor} * choice.context;
  return pipeline_slowest(job) ? inner : inner * choice.pipeline;
}

int64_t pipeline_stride(const LayoutChoice& choice, const JobSpec& job) {
  if (choice.spread_placement) return choice.data();
  const int64_t inner = int64_t{choice.tensor} * choice.context;
  return pipeline_slowest(job) ? inner * choice.data() : inner;
}

int64_t tensor_stride(const LayoutChoice& choice) {
  return choice.spread_placement ? choice.data() * choice.pipeline : 1;
}

}  // namespace

Placement tensor_placement(const LayoutChoice& choice, const ClusterSpec& cluster) {
  return placement_of(choice.tensor, tensor_stride(choice), cluster.processes_per_host);
}

Placement context_placement(const LayoutChoice& choice, const ClusterSpec& cluster) {
  return placement_of(choice.context, tensor_stride(choice) * choice.tensor,
                      cluster.processes_per_host);
}

Placement expert_placement(const LayoutChoice& choice, const ClusterSpec& cluster) {
  // Experts are spread over neighbours: tensor, context, then data.
  return placement_of(choice.expert, choice.expert_tensor, cluster.processes_per_host);
}

Placement shard_placement(const LayoutChoice& choice, const JobSpec& job) {
  return placement_of(choice.shard, data_stride(choice, job), job.cluster.processes_per_host);
}

Placement replica_placement(const LayoutChoice& choice, const JobSpec& job) {
  return placement_of(choice.replica, data_stride(choice, job) * choice.shard,
                      job.cluster.processes_per_host);
}

Placement data_placement(const LayoutChoice& choice, const JobSpec& job) {
  return placement_of(choice.data(), data_stride(choice, job), job.cluster.processes_per_host);
}

double boundaries_between_hosts(const LayoutChoice& choice, const JobSpec& job) {
  const int64_t stride = pipeline_stride(choice, job);
  const int64_t on_a_host =
      std::max<int64_t>(1, job.cluster.processes_per_host / std::max<int64_t>(1, stride));
  // Stages of a host are neighbours; the first of each further host is reached over the network.
  return static_cast<double>((choice.pipeline - 1) / on_a_host);
}

}  // namespace smp
