#pragma once

#include "links/placement.h"
#include "smp/plan/mesh/collective.h"
#include "smp/plan/spec/job_spec.h"

namespace smp::links {

// Host memory bandwidth that CPUs use, of one host (two sockets of 8 channels DDR4-3200 have
// 410 GB/s; DeepSpeed's CPU Adam reaches about a third).
inline constexpr double kHostBytesPerS = 140e9;

// Seconds of a collective of GPUs' memory that goes by their hosts: copied down, summed by CPUs,
// sent to the other hosts, copied up. Every rank of a host does the same at the same time, in
// groups like this one. `bytes` as in link_model.h; `op` is all_reduce, all_gather, reduce_scatter
// or broadcast.
double by_host_s(mesh::CollectiveOp op, double bytes, const Placement& placement,
                 const ClusterSpec& cluster);

}  // namespace smp::links
