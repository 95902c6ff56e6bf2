#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "smp/comm/communicator.h"
#include "smp/runtime/flat_parameters.h"
#include "smp/runtime/groups.h"

namespace smp {

// Moves gradient buckets and updated weights over the data-parallel ranks, in place in the flat
// buffers, while the engine computes.
//
// Without sharding a bucket's gradients are summed over the data group. With it they are
// reduce-scattered over the shard group, so that shard i ends with the sums of part i, which is
// then summed over the replicas; after the step the parts of the weights are gathered again. Second
// halves start in the order of the first, whatever finishes first, so that all replicas agree on
// it. Used by the engine's thread.
class BucketTraffic {
 public:
  BucketTraffic(FlatParameters& parameters, RankGroups& groups);

  void start_reduce(int64_t bucket);
  void poll();  // starts what a finished first half has made possible
  void wait_reduce(int64_t bucket);

  void start_gather(int64_t bucket);
  void wait_gather(int64_t bucket);

  void abandon();  // waits, after an abort, until nothing moves any more

 private:
  void finish_first_half();  // of the oldest bucket

  FlatParameters& parameters_;
  Communicator* data_;
  Communicator* shard_;
  Communicator* replica_;
  std::deque<int64_t> first_halves_;  // buckets under reduce-scatter, oldest first
  std::vector<WorkPtr> reductions_;   // by bucket
  std::vector<WorkPtr> gathers_;      // by bucket
};

}  // namespace smp
