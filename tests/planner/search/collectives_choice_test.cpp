#include "search/collectives_choice.h"

#include <doctest/doctest.h>

#include "links/host_exchange.h"
#include "plan/model_samples.h"
#include "search/pricer.h"

using namespace smp;
using namespace smp::choice;
using namespace smp::links;
using namespace smp::mesh;
using namespace smp::search;

namespace {

constexpr auto kNccl = CollectivesKind::kNccl;
constexpr auto kHost = CollectivesKind::kHost;

// 8 GPUs of a host, whose links to each other are slower than those to the host's memory.
JobSpec slow_links() {
  JobSpec job;
  job.model = gpt2_124m();
  job.cluster.device = DeviceKind::kCuda;
  job.cluster.processes_per_host = 8;
  job.cluster.memory_per_process_bytes = int64_t{24} << 30;
  job.cluster.has_bf16 = true;
  job.cluster.half_flops_per_s = 165e12;
  job.cluster.fp32_flops_per_s = 80e12;
  job.cluster.memory_bytes_per_s = 1e12;
  job.cluster.host_link_bytes_per_s = 12e9;
  job.cluster.intra_host_bytes_per_s = 2e9;
  job.cluster.multiprocessors = 128;
  job.cluster.collective_multiprocessors = 16;
  job.training.sequence_length = 1024;
  return job;
}

CollectivesChoice chosen_for(const JobSpec& job, const LayoutChoice& choice) {
  Pricer pricer(job);
  return choose_collectives(pricer, choice);
}

LayoutChoice layout_of(int32_t tensor, int32_t shard, int32_t replica) {
  LayoutChoice choice;
  choice.tensor = tensor;
  choice.shard = shard;
  choice.replica = replica;
  choice.sharding = shard > 1 ? Sharding::kParameters : Sharding::kNone;
  return choice;
}

}  // namespace

TEST_CASE("each kind of group has the way that takes less of the step, with both prices said") {
  JobSpec job = slow_links();
  const CollectivesChoice by_host = chosen_for(job, layout_of(1, 4, 2));
  CHECK(by_host.groups.shard == kHost);
  CHECK(by_host.groups.replica == kHost);
  CHECK(by_host.groups.tensor == std::nullopt);
  CHECK(by_host.groups.data == std::nullopt);
  CHECK(by_host.others == kHost);  // nothing needs NCCL
  REQUIRE(by_host.reasons.size() == 2);
  CHECK(by_host.reasons[0].starts_with("collectives of shard groups host: nccl takes "));
  CHECK(by_host.reasons[0].find(" a step, host ") != std::string::npos);
  CHECK(by_host.reasons[1].starts_with("collectives of replica groups host: nccl takes "));

  job.cluster.intra_host_bytes_per_s = 300e9;
  const CollectivesChoice by_nccl = chosen_for(job, layout_of(2, 1, 4));
  CHECK(by_nccl.groups.tensor == kNccl);
  CHECK(by_nccl.groups.data == kNccl);
  CHECK(by_nccl.others == kNccl);
  REQUIRE(by_nccl.reasons.size() == 2);
  CHECK(by_nccl.reasons[0].starts_with("collectives of tensor groups nccl: nccl takes "));
  CHECK(by_nccl.reasons[1].starts_with("collectives of data groups nccl: nccl takes "));
}

TEST_CASE("what is pinned counts, for one kind of group or for all, and its price is said") {
  JobSpec job = slow_links();
  job.parallel.collectives.replica = kNccl;
  CollectivesChoice choice = chosen_for(job, layout_of(1, 4, 2));
  CHECK(choice.groups.shard == kHost);
  CHECK(choice.groups.replica == kNccl);
  CHECK(choice.others == kNccl);
  CHECK(
      choice.reasons.at(1).starts_with("collectives of replica groups nccl: pinned; nccl takes "));

  job.parallel.data_collectives = kHost;
  job.cluster.intra_host_bytes_per_s = 300e9;
  choice = chosen_for(job, layout_of(1, 4, 2));
  CHECK(choice.groups.shard == kHost);
  CHECK(choice.groups.replica == kNccl);
  CHECK(choice.others == kHost);
  CHECK(choice.reasons.at(0).starts_with("collectives of shard groups host: pinned; nccl takes "));
}

TEST_CASE("a reduction is slowed by the multiprocessors of the groups that it runs in, no others") {
  JobSpec job = slow_links();
  LayoutChoice choice = layout_of(1, 8, 1);
  choice.sharding = Sharding::kOptimizerState;
  job.parallel.collectives.shard = kHost;
  job.parallel.collectives.replica = kNccl;  // there are none
  const CollectivesChoice one = chosen_for(job, choice);
  job.parallel.collectives.replica = kHost;
  const CollectivesChoice other = chosen_for(job, choice);
  REQUIRE(!one.reasons.empty());
  CHECK(one.reasons == other.reasons);
}

TEST_CASE("NCCL stays where the host's way would save less than the model can tell") {
  JobSpec job = slow_links();
  bool told = false;
  for (double rate = 1e9; rate < 100e9; rate *= 1.01) {
    job.cluster.intra_host_bytes_per_s = rate;
    const CollectivesChoice choice = chosen_for(job, layout_of(1, 8, 1));
    const std::string& reason = choice.reasons.at(0);
    const bool equal = reason.ends_with("; times within 3 % count as equal");
    if (equal) CHECK(choice.groups.shard == kNccl);
    told = told || equal;
  }
  CHECK(told);
}

TEST_CASE("NCCL stays where the host's link is for what is offloaded, unless it is pinned") {
  JobSpec job = slow_links();
  LayoutChoice offloading = layout_of(1, 8, 1);
  offloading.offload_optimizer = true;
  CollectivesChoice choice = chosen_for(job, offloading);
  CHECK(choice.groups.shard == kNccl);
  CHECK(choice.reasons.at(0).ends_with("; the link to the host is reserved for offloading"));
  job.parallel.collectives.shard = kHost;
  CHECK(chosen_for(job, offloading).groups.shard == kHost);
}

TEST_CASE("NCCL stays where a host has no room for the messages") {
  JobSpec job = slow_links();
  const LayoutChoice choice = layout_of(1, 8, 1);
  REQUIRE(chosen_for(job, choice).groups.shard == kHost);
  job.cluster.host_memory_bytes = 1 << 30;
  const CollectivesChoice chosen = chosen_for(job, choice);
  CHECK(chosen.groups.shard == kNccl);
  CAPTURE(chosen.reasons.at(0));
  CHECK(chosen.reasons.at(0).find("; host needs ") != std::string::npos);
  CHECK(chosen.reasons.at(0).ends_with(" of host memory, a host has 1.00 GiB"));
}

TEST_CASE("without the rate of copies to the host there is no price, and NCCL has all groups") {
  JobSpec job = slow_links();
  job.cluster.host_link_bytes_per_s = 0;
  CollectivesChoice choice = chosen_for(job, layout_of(1, 4, 2));
  CHECK(choice.groups.shard == kNccl);
  CHECK(choice.reasons.empty());
  job.parallel.collectives.shard = kHost;
  choice = chosen_for(job, layout_of(1, 4, 2));
  CHECK(choice.groups.shard == kHost);
  CHECK(choice.reasons == std::vector<std::string>{"collectives of shard groups host: pinned"});
}

TEST_CASE("by the host: copies, sums and messages beside each other in large messages alone") {
  ClusterSpec cluster;
  cluster.device = DeviceKind::kCuda;
  cluster.processes_per_host = 1;
  cluster.host_link_bytes_per_s = 10e9;
  cluster.inter_host_bytes_per_s = 5e9;
  const double small = 1e6, large = 1e9, starts = 30e-6;
  const Placement pair{2, 2, 1};
  // Down, summed (read and written beside the copies), sent and fetched, up.
  CHECK(by_host_s(CollectiveOp::kAllReduce, small, pair, cluster) ==
        doctest::Approx(starts + 2 * small / 10e9 + 4 * small / kHostBytesPerS + small / 5e9));
  const double shorter = 2 * large / 10e9 + 4 * large / kHostBytesPerS;
  CHECK(by_host_s(CollectiveOp::kAllReduce, large, pair, cluster) ==
        doctest::Approx(starts + large / 5e9 +
                        shorter / static_cast<double>(parts_by_host(1'000'000'000))));
  CHECK(by_host_s(CollectiveOp::kAllGather, small, pair, cluster) <
        by_host_s(CollectiveOp::kAllReduce, small, pair, cluster));
}
