#include "smp/planner/links/collective_seconds.h"

#include <doctest/doctest.h>

#include <iterator>

#include "links/link_model.h"

using namespace smp;
using namespace smp::links;
using namespace smp::mesh;

TEST_CASE("collectives: a ring inside a host, shared links between hosts, trees for latency") {
  ClusterSpec cluster;
  cluster.device = DeviceKind::kCuda;
  cluster.processes_per_host = 8;
  cluster.intra_host_bytes_per_s = 200e9;
  cluster.inter_host_bytes_per_s = 25e9;
  CHECK(all_reduce_s(8e9, {8, 1, 8}, cluster) == doctest::Approx(2 * 7.0 / 8 * 8e9 / 200e9));
  CHECK(all_gather_s(8e9, {8, 1, 8}, cluster) == doctest::Approx(7.0 / 8 * 8e9 / 200e9));
  CHECK(reduce_scatter_s(8e9, {4, 4, 1}, cluster) == doctest::Approx(3.0 / 4 * 8e9 / 25e9));
  // Two members on a host use two cards; eight are held by the links inside.
  CHECK(all_reduce_s(8e9, {8, 4, 2}, cluster) == doctest::Approx(2 * 7.0 / 8 * 8e9 / 50e9));
  CHECK(all_reduce_s(8e9, {32, 4, 8}, cluster) == doctest::Approx(2 * 31.0 / 32 * 8e9 / 200e9));
  CHECK(all_to_all_s(8e9, {16, 2, 8}, cluster) == doctest::Approx(8e9 / 2 / 25e9));
  CHECK(send_s(1e9, false, cluster) == doctest::Approx(0.04));
  // Latency: rings pass every rank, the tree of an all-reduce does not; a gather has no tree.
  cluster.intra_host_latency_s = 1e-6;
  cluster.inter_host_latency_s = 1e-5;
  const double reduce = all_reduce_s(8, {1024, 128, 8}, cluster);
  CHECK(reduce < 2e-4);
  CHECK(all_gather_s(8, {1024, 128, 8}, cluster) > 10 * reduce);
  // SMDDP's mesh is one hop, and takes fewer multiprocessors.
  cluster.collective_multiprocessors = 24;
  CHECK(all_gather_s(8, {1024, 128, 8}, cluster, CollectiveBackend::kMesh) < 1e-4);
  CHECK(multiprocessors_taken(cluster, CollectiveBackend::kNccl) == 24);
  CHECK(multiprocessors_taken(cluster, CollectiveBackend::kMesh) == 9);
}

TEST_CASE("calls of one rank, and sends, take what was measured of them") {
  ClusterSpec cluster;
  cluster.processes_per_host = 4;
  cluster.intra_host_bytes_per_s = 1e9;
  cluster.inter_host_bytes_per_s = 1e9;
  const auto seconds = [&](CollectiveOp op, double bytes, int64_t ranks, int64_t hosts = 1) {
    return collective_seconds(op, bytes, ranks, hosts, cluster);
  };
  CHECK(seconds(CollectiveOp::kSend, 1e6, 2) == doctest::Approx(1e-3));  // by the rate
  CHECK(seconds(CollectiveOp::kGather, 1e6, 2) == doctest::Approx(0.5e-3));
  const CollectiveOp ops[] = {CollectiveOp::kReduce, CollectiveOp::kGather, CollectiveOp::kScatter,
                              CollectiveOp::kSend};
  for (size_t i = 0; i < std::size(ops); ++i) {
    cluster.intra_host_points.push_back({2, 1000000, 1e-4 * double(i + 1), ops[i]});
    cluster.intra_host_points.push_back({4, 1000000, 2e-4 * double(i + 1), ops[i]});
  }
  for (size_t i = 0; i < std::size(ops); ++i) {
    CAPTURE(name_of(ops[i]));
    CHECK(seconds(ops[i], 1e6, 2) == doctest::Approx(1e-4 * double(i + 1)));
    CHECK(seconds(ops[i], 1e6, 4) == doctest::Approx(2e-4 * double(i + 1)));
  }
  // The root of a reduce reads what each has; of a gather 1 - 1 / N comes from others.
  CHECK(seconds(CollectiveOp::kReduce, 1e6, 3) == doctest::Approx(1.5e-4));
  CHECK(seconds(CollectiveOp::kGather, 1e6, 3) == doctest::Approx(2e-4 * (1 + 2.0 / 3)));
  // A message between stages has the link for itself: as of the fewest ranks that were measured.
  CHECK(send_s(1e6, true, cluster) == doctest::Approx(4e-4));
  CHECK(send_s(1e6, false, cluster) == doctest::Approx(1e-3));
  cluster.inter_host_points.push_back({8, 1000000, 7e-4, CollectiveOp::kSend});
  CHECK(send_s(1e6, false, cluster) == doctest::Approx(7e-4));
  CHECK(seconds(CollectiveOp::kSend, 2e6, 8, 2) == doctest::Approx(14e-4));
}

TEST_CASE("between hosts small messages go by NCCL's protocols that save latency for bandwidth") {
  ClusterSpec cluster;
  cluster.device = DeviceKind::kCuda;
  cluster.processes_per_host = 8;
  cluster.intra_host_bytes_per_s = 200e9;
  cluster.inter_host_bytes_per_s = 25e9;
  cluster.host_link_bytes_per_s = 12e9;
  cluster.intra_host_latency_s = 3.4e-6;
  cluster.inter_host_latency_s = 14e-6;
  const Placement all{1024, 128, 8};
  const double start = 8 * 3.4e-6;
  const double moved = 1023.0 / 1024;
  CHECK(all_gather_s(8, all, cluster) == doctest::Approx(start + 896 * 1.08e-6 + 127 * 2.7e-6));
  CHECK(all_gather_s(1e8, all, cluster) ==
        doctest::Approx(start + 896 * 1.9e-6 + 127 * 4e-6 + moved * 1e8 / (0.92 * 200e9)));
  CHECK(all_gather_s(1e11, all, cluster) ==
        doctest::Approx(start + 896 * 3.4e-6 + 127 * 14e-6 + moved * 1e11 / 200e9));
  CHECK(broadcast_s(1e8, all, cluster) ==
        doctest::Approx(start + 896 * 1.9e-6 + 127 * 4e-6 + 1e8 / (0.92 * 200e9)));
  CHECK(broadcast_s(1e8, {1, 1, 1}, cluster) == 0);
  // One of them is for NVLink only, and groups on one host keep to the first.
  cluster.host_link_bytes_per_s = 400e9;
  CHECK(all_gather_s(1e8, all, cluster) ==
        doctest::Approx(start + 896 * 1.08e-6 + 127 * 2.7e-6 + moved * 1e8 / (0.25 * 200e9)));
  CHECK(all_gather_s(8, {8, 1, 8}, cluster) == doctest::Approx(start + 7 * 3.4e-6));
}

TEST_CASE("measured points replace latency and rate where they reach") {
  ClusterSpec cluster;
  cluster.processes_per_host = 8;
  cluster.intra_host_bytes_per_s = 1;  // would take for ever
  cluster.intra_host_points = {{8, 1000, 1e-4}, {8, 3000, 3e-4}, {4, 1000, 7e-5}};
  CHECK(all_reduce_s(10, {8, 1, 8}, cluster) == doctest::Approx(1e-4));
  CHECK(all_reduce_s(2000, {8, 1, 8}, cluster) == doctest::Approx(2e-4));
  CHECK(all_reduce_s(6000, {8, 1, 8}, cluster) == doctest::Approx(6e-4));
  CHECK(all_reduce_s(1000, {4, 1, 4}, cluster) == doctest::Approx(7e-5));
  CHECK(all_gather_s(2000, {8, 1, 8}, cluster) == doctest::Approx(1e-4));
  CHECK(all_reduce_s(1000, {2, 1, 2}, cluster) > 1);  // not measured
}

TEST_CASE("groups between two sizes that were measured lie between them, others keep to formulas") {
  ClusterSpec cluster;
  cluster.processes_per_host = 8;
  cluster.intra_host_bytes_per_s = 1;  // would take for ever
  cluster.intra_host_points = {
      {2, 1000, 1e-4}, {2, 3000, 3e-4}, {8, 1000, 4e-4}, {4, 1000, 9e-3, CollectiveOp::kBroadcast}};
  CHECK(all_reduce_s(1000, {5, 1, 5}, cluster) == doctest::Approx(3.4e-4));  // 1 / 5
  CHECK(all_reduce_s(3000, {5, 1, 5}, cluster) == doctest::Approx(3e-4 + 0.8 * 9e-4));
  CHECK(all_gather_s(1000, {5, 1, 5}, cluster) == doctest::Approx(1.7e-4));
  CHECK(all_reduce_s(1000, {9, 1, 9}, cluster) > 1);  // beyond them
  CHECK(broadcast_s(1000, {3, 1, 3}, cluster) > 1);
  CHECK(broadcast_s(1000, {4, 1, 4}, cluster) == doctest::Approx(9e-3));
  // Between hosts a root sends all to each: linear in N itself.
  cluster.processes_per_host = 1;
  cluster.inter_host_points = {{2, 1000, 1e-4, CollectiveOp::kBroadcast},
                               {4, 1000, 3e-4, CollectiveOp::kBroadcast},
                               {2, 1000, 1e-4, CollectiveOp::kAllGather},
                               {4, 1000, 3e-4, CollectiveOp::kAllGather}};
  CHECK(broadcast_s(1000, {3, 3, 1}, cluster) == doctest::Approx(2e-4));
  CHECK(all_gather_s(1000, {3, 3, 1}, cluster) == doctest::Approx(1e-4 + 2e-4 * 2 / 3));
}

TEST_CASE("points of another call price that call, and no other") {
  ClusterSpec cluster;
  cluster.processes_per_host = 2;
  cluster.intra_host_bytes_per_s = 1;  // would take for ever
  cluster.inter_host_bytes_per_s = 1;
  cluster.intra_host_points = {{2, 1000, 8e-4},
                               {2, 1000, 1e-4, CollectiveOp::kAllGather},
                               {2, 3000, 5e-4, CollectiveOp::kAllGather},
                               {2, 1000, 2e-4, CollectiveOp::kBroadcast},
                               {2, 1000, 3e-4, CollectiveOp::kAllToAll}};
  cluster.inter_host_points = {{4, 1000, 6e-4, CollectiveOp::kReduceScatter}};
  const auto seconds = [&](CollectiveOp op, double bytes, int64_t hosts = 1) {
    return collective_seconds(op, bytes, 2 * hosts, hosts, cluster);
  };
  CHECK(seconds(CollectiveOp::kAllReduce, 1000) == doctest::Approx(8e-4));
  CHECK(seconds(CollectiveOp::kAllGather, 2000) == doctest::Approx(3e-4));
  CHECK(seconds(CollectiveOp::kReduceScatter, 1000) ==
        doctest::Approx(4e-4));  // half an all-reduce
  CHECK(seconds(CollectiveOp::kBroadcast, 1000) == doctest::Approx(2e-4));
  CHECK(seconds(CollectiveOp::kAllToAll, 1000) == doctest::Approx(3e-4));
  CHECK(seconds(CollectiveOp::kReduceScatter, 1000, 2) == doctest::Approx(6e-4));
  CHECK(seconds(CollectiveOp::kAllReduce, 1000, 2) > 1);  // not measured
  CHECK(seconds(CollectiveOp::kBarrier, 0) == 0);
}

TEST_CASE("groups over several hosts: strides decide how many members share a host") {
  CHECK(placement_of(64, 8, 8).hosts == 64);
  CHECK(placement_of(64, 2, 8).hosts == 16);
  CHECK(placement_of(64, 2, 8).most_on_a_host == 4);
  CHECK(placement_of(4, 1, 8).hosts == 1);
}
