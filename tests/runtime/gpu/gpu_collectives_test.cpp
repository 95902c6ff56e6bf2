#include "gpu/gpu_collectives.h"

#include <doctest/doctest.h>

#include "plan/plan_samples.h"
#include "smp/plan/base/errors.h"

using namespace smp;
using namespace smp::gpu;

namespace {

// Two tensor ranks for each of two copies: tensor groups 0-1 and 2-3, data groups 0,2 and 1,3.
Plan four_ranks() { return sample_plan(small_llama(), {.tensor = 2, .replica = 2}); }

std::string refused(const Plan& plan, int64_t rank, const std::vector<GpuLocation>& places) {
  try {
    check_own_gpus(plan, rank, places);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("NCCL is asked for where a group's key says so, or the key for all") {
  Plan plan = four_ranks();
  CHECK_FALSE(uses_nccl(plan, 0));
  plan.job.parallel.collectives.shard = CollectivesKind::kNccl;  // there is no such group
  CHECK_FALSE(uses_nccl(plan, 0));
  plan.job.parallel.collectives.data = CollectivesKind::kNccl;
  for (int64_t rank = 0; rank < 4; ++rank) CHECK(uses_nccl(plan, rank));
  plan.job.parallel.collectives = {};
  plan.job.parallel.data_collectives = CollectivesKind::kNccl;
  CHECK(uses_nccl(plan, 3));
}

TEST_CASE("ranks that share a GPU are refused where they meet in a group by NCCL") {
  Plan plan = four_ranks();
  plan.job.parallel.data_collectives = CollectivesKind::kHost;
  plan.job.parallel.collectives.tensor = CollectivesKind::kNccl;
  // GPUs 0, 1, 0, 1: tensor groups have two each, data groups share one.
  const std::vector<GpuLocation> by_copy = {{7, 0}, {7, 1}, {7, 0}, {7, 1}};
  for (int64_t rank = 0; rank < 4; ++rank) CHECK(refused(plan, rank, by_copy) == "");
  const std::vector<GpuLocation> by_tensor = {{7, 0}, {7, 0}, {7, 1}, {7, 1}};
  CHECK(refused(plan, 1, by_tensor) ==
        "parallel.collectives.tensor: nccl needs one GPU per rank, but ranks 0 and 1 of a tensor "
        "group share GPU 0: use fewer ranks, or set collectives.tensor: host");
  const std::vector<GpuLocation> two_hosts = {{7, 0}, {8, 0}, {7, 1}, {8, 1}};
  CHECK(refused(plan, 3, two_hosts) == "");
  plan.job.parallel.data_collectives = CollectivesKind::kNccl;
  CHECK(refused(plan, 2, by_copy) ==
        "parallel.data_collectives: nccl needs one GPU per rank, but ranks 0 and 2 of a world "
        "group share GPU 0: use fewer ranks, or set data_collectives: host");
}
