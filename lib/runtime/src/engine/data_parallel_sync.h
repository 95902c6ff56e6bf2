#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "smp/comm/communicator.h"
#include "smp/runtime/parallel/groups.h"
#include "smp/runtime/parameters/flat_parameters.h"

namespace smp::engine {

// Reduces gradient buckets and gathers weights over the data-parallel ranks, in place in the
// buffers of FlatParameters, while the engine computes.
//
// Executes the schedule's actions, which say when calls start and when they are waited for.
//
// Without sharding a bucket's gradients are all-reduced over the data group. With sharding a
// bucket's reduction has two halves: a reduce-scatter over the shard group, after which shard i has
// the sums of part i, and an all-reduce of that part over the replicas (hybrid sharding). After the
// update the parts of the weights are all-gathered.
//
// If the shard group offers a PeerWindow, a rank publishes its updated part in the window, and the
// peers copy the part when they need it: the gather synchronises no ranks. A rank changes its part
// only after the reduction of its bucket. All ranks start that reduction after their last use of
// these weights, and so after their last gather of them.
//
// Gathers of whole weights without a window are limited to kMostGathers, because with GPUs
// each needs a buffer in host memory until it is done; the others are queued.
//
// Sharded gradients are reduce-scattered for each microbatch. The first sums become this rank's
// part, further sums are added to it, and the shared buffer is zeroed for the next bucket. Used by
// the engine's thread.
class DataParallelSync {
 public:
  static constexpr size_t kMostGathers = 2;

  DataParallelSync(parameters::FlatParameters& parameters, parallel::RankGroups& groups);

  void updated(int64_t bucket);  // the optimizer has updated this rank's part
  // `is_first`: this is the step's first reduction of the bucket.
  void start_reduce(int64_t bucket, bool is_first);
  void finish_reduce(int64_t bucket, bool is_first);  // its buffer may then be filled again
  void start_replicas(int64_t bucket);                // the second half
  void finish_replicas(int64_t bucket);
  void poll();  // starts queued gathers that have become possible

  // Starts the gather, or queues it behind those in flight.
  void start_gather(int64_t bucket);
  void wait_gather(int64_t bucket);  // returns at once if there is none
  void finish_gathers();             // waits for all gathers; the caller may then change weights

  void abandon();  // after an abort: waits until no buffer is used any more

 private:
  void changed(int64_t bucket);  // negative: all
  void show_weights();           // publishes all changes in the window
  void start_gathers();
  void gather(int64_t bucket);

  parameters::FlatParameters& parameters_;
  comm::Communicator* data_;
  comm::Communicator* shard_;
  comm::Communicator* replica_;
  const bool shards_gradients_;
  std::unique_ptr<comm::PeerWindow> window_;  // of the flat weights; null: all-gathers instead
  int64_t shown_ = 0;                         // how often the window was published
  std::vector<comm::WorkPtr> reductions_;     // by bucket: all-reduces, or first halves
  std::vector<comm::WorkPtr> second_halves_;  // by bucket: all-reduces over the replicas
  std::vector<int64_t> published_in_;   // by bucket: the `shown_` that has its current weights
  std::vector<comm::WorkPtr> gathers_;  // by bucket
  bool limits_gathers_ = false;
  std::deque<int64_t> gathers_in_flight_;  // buckets, possibly done by now; oldest first
  std::deque<int64_t> queued_gathers_;     // buckets whose gather is not started yet
};

}  // namespace smp::engine
