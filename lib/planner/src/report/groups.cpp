#include "smp/planner/report/groups.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "smp/plan/base/errors.h"

namespace smp::report {
namespace {

constexpr size_t kShownMembers = 32;

std::string members(const std::vector<int64_t>& ranks) {
  if (ranks.size() <= kShownMembers) return fmt::format("[{}]", fmt::join(ranks, ", "));
  return fmt::format("[{}, ...] ({} ranks, last {})",
                     fmt::join(ranks.begin(), ranks.begin() + kShownMembers, ", "), ranks.size(),
                     ranks.back());
}

}  // namespace

std::string describe_groups(const Plan& plan, int64_t rank) {
  const mesh::Degrees& degrees = plan.degrees;
  const int64_t world = degrees.world();
  if (rank < 0 || rank >= world) {
    throw ConfigError(fmt::format("rank {}: the plan has ranks 0 to {}", rank, world - 1));
  }
  const mesh::Mesh mesh(degrees, plan.job.parallel.placement_strategy);
  const mesh::Coord coord = mesh.coord_of(rank);
  std::string text = fmt::format(
      "rank {} of {}: pipeline {} of {}, tensor {} of {}, data {} of {} (shard {} of {}, replica "
      "{} "
      "of {}); placement {}\n\n",
      rank, world, coord.pipeline, degrees.pipeline, coord.tensor, degrees.tensor,
      coord.data(degrees), degrees.data(), coord.shard, degrees.shard, coord.replica,
      degrees.replica, plan.job.parallel.placement_strategy);

  const struct {
    const char* name;
    mesh::Axis axis;
    const char* meaning;
  } groups[] = {
      {"WORLD", mesh::Axis::kWorld, "everybody"},
      {"MP", mesh::Axis::kModel, "pipeline x tensor: one copy of the model"},
      {"PP", mesh::Axis::kPipeline, "the stages"},
      {"TP", mesh::Axis::kTensor, "share each layer's matrices"},
      {"ring", mesh::Axis::kRing, "pass keys and values of their sequences on"},
      {"heads", mesh::Axis::kExchange, "exchange heads of their sequences"},
      {"experts", mesh::Axis::kExpert, "share the experts of each layer"},
      {"same", mesh::Axis::kExpertData, "hold the same part of the experts"},
      {"DP", mesh::Axis::kTensorData, "same stage"},
      {"RDP", mesh::Axis::kData, "same stage and same part of each matrix"},
      {"shard", mesh::Axis::kShard, "share one copy of the sharded state"},
      {"replica", mesh::Axis::kReplica, "hold the same shard"},
  };
  for (const auto& group : groups) {
    const bool shares_sequences =
        group.axis == mesh::Axis::kRing || group.axis == mesh::Axis::kExchange;
    const bool shares_experts =
        group.axis == mesh::Axis::kExpert || group.axis == mesh::Axis::kExpertData;
    if (shares_sequences && degrees.context == 1) continue;
    if (shares_experts && degrees.expert == 1) continue;
    const std::vector<int64_t> ranks = mesh.group(rank, group.axis);
    text += fmt::format("{:<8}{:>5}  {}  {}\n", group.name, ranks.size(), members(ranks),
                        group.meaning);
  }
  text += fmt::format(
      "\nSMP's sizes   dp {} = world / pp = {} / {},  rdp {} = world / (pp x tp) = {} / ({} x {}), "
      " "
      "mp {}, pp {}, tp {}\n"
      "sizes here    data-parallel degree d = {} = shard {} x replica {};  SMP's dp is d x t = "
      "{}\n",
      world / degrees.pipeline, world, degrees.pipeline, degrees.data(), world, degrees.pipeline,
      degrees.tensor, degrees.pipeline * degrees.tensor, degrees.pipeline, degrees.tensor,
      degrees.data(), degrees.shard, degrees.replica,
      degrees.data() * degrees.tensor * degrees.context);
  return text;
}

}  // namespace smp::report
