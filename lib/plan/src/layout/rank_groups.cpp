#include "smp/plan/layout/rank_groups.h"

#include <fmt/format.h>

#include <algorithm>

#include "smp/plan/layout/layout.h"
#include "smp/plan/model/layers.h"
#include "smp/plan/spec/plan.h"

namespace smp::layout {

std::vector<RankGroup> rank_groups(const Plan& plan, int64_t rank) {
  const int64_t copies = kv_copies(plan);

  std::vector<mesh::Axis> axes = {mesh::Axis::kWorld, mesh::Axis::kPipeline, mesh::Axis::kTensor,
                                  mesh::Axis::kRing, mesh::Axis::kExchange};
  if (state_share(plan).shards > 1) {
    axes.push_back(mesh::Axis::kShard);
    axes.push_back(mesh::Axis::kReplica);
  } else {
    axes.push_back(mesh::Axis::kData);
  }
  axes.push_back(mesh::Axis::kExpert);
  if (shares_experts(plan)) {
    axes.push_back(state_share(plan).shards > 1 ? mesh::Axis::kExpertShard
                                                : mesh::Axis::kExpertData);
  }
  axes.push_back(mesh::Axis::kKvHead);
  if (tied_across_stages(plan)) axes.push_back(mesh::Axis::kTied);

  const mesh::Mesh mesh(plan.degrees, plan.job.parallel.placement_strategy);
  std::vector<RankGroup> groups;
  for (const mesh::Axis axis : axes) {
    std::vector<int64_t> ranks = mesh.group(rank, axis, copies);
    const bool member = std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
    if (member && ranks.size() > 1) groups.push_back({axis, std::move(ranks)});
  }
  return groups;
}

CollectivesMember own_collectives(mesh::Axis axis) {
  switch (axis) {
    case mesh::Axis::kTensor: return &GroupCollectives::tensor;
    case mesh::Axis::kShard: return &GroupCollectives::shard;
    case mesh::Axis::kReplica: return &GroupCollectives::replica;
    case mesh::Axis::kData: return &GroupCollectives::data;
    default: return nullptr;
  }
}

std::optional<CollectivesKind> collectives_of(const ParallelSpec& parallel, mesh::Axis axis) {
  const CollectivesMember own = own_collectives(axis);
  if (own != nullptr && parallel.collectives.*own) return parallel.collectives.*own;
  return parallel.data_collectives;
}

std::string collectives_key(const ParallelSpec& parallel, mesh::Axis axis) {
  const CollectivesMember own = own_collectives(axis);
  return own != nullptr && parallel.collectives.*own
             ? fmt::format("parallel.collectives.{}", name_of(axis))
             : "parallel.data_collectives";
}

mesh::HostGrid grid_of(const Plan& plan, const std::vector<int64_t>& ranks) {
  if (plan.job.cluster.hosts == 1) return {1, static_cast<int64_t>(ranks.size())};
  std::vector<int64_t> hosts;
  for (const int64_t rank : ranks) hosts.push_back(rank / plan.job.cluster.processes_per_host);
  return mesh::host_grid(hosts);
}

int64_t communication_bytes(const Plan& plan, const RankGroup& group) {
  return mesh::group_bytes(grid_of(plan, group.ranks), group.axis == mesh::Axis::kWorld);
}

}  // namespace smp::layout
