#pragma once

#include "links/placement.h"
#include "smp/plan/mesh/mesh.h"
#include "smp/plan/spec/job_spec.h"

// Seconds of collectives, by where their group sits: latency of the rounds + bytes / bandwidth of
// the slowest link they pass, or interpolated between measured points (ClusterSpec's LinkPoints).
// docs/time.md has the formulas and their sources. A rate of 0 is unknown and costs nothing. Pure.
namespace smp::links {

// How the bytes of a group travel: NCCL's rings and trees between GPUs (or the engine's own way
// between CPUs); SMDDP's mesh; by the hosts of the GPUs, as the engine does (host_exchange.h).
enum class CollectiveBackend { kNccl, kMesh, kHost };
CollectiveBackend exchange_of(const JobSpec& job, mesh::Axis axis);

// `bytes` is the whole buffer: what every rank reduces, what an all-gather makes, what a
// reduce-scatter starts from.
double all_reduce_s(double bytes, const Placement& placement, const ClusterSpec& cluster,
                    CollectiveBackend how = CollectiveBackend::kNccl);
double all_gather_s(double bytes, const Placement& placement, const ClusterSpec& cluster,
                    CollectiveBackend how = CollectiveBackend::kNccl);
double reduce_scatter_s(double bytes, const Placement& placement, const ClusterSpec& cluster,
                        CollectiveBackend how = CollectiveBackend::kNccl);
// One rank's `bytes` to all others, along the ring.
double broadcast_s(double bytes, const Placement& placement, const ClusterSpec& cluster,
                   CollectiveBackend how = CollectiveBackend::kNccl);
// Every rank has `bytes`, and sends an equal part of them to each of its peers.
double all_to_all_s(double bytes, const Placement& placement, const ClusterSpec& cluster);
// One message between two ranks, while their hosts' other ranks do the same.
double send_s(double bytes, bool same_host, const ClusterSpec& cluster);

// Multiprocessors that a running collective takes from the matmuls beside it.
double multiprocessors_taken(const ClusterSpec& cluster, CollectiveBackend how);

}  // namespace smp::links
