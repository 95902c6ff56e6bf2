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
// Without sharding a bucket's gradients are all-reduced over the data group. With sharding a
// bucket's reduction has two halves: a reduce-scatter over the shard group, after which shard i has
// the sums of part i, and an all-reduce of that part over the replicas (hybrid sharding). After the
// update the parts of the weights are all-gathered. Second halves start in the order of the first
// halves, whichever finishes first, so that all replicas call in the same order.
//
// If the shard group offers a PeerWindow, a rank publishes its updated part in the window, and the
// peers copy the part when they need it: the gather synchronises no ranks. A rank changes its part
// only after the reduction of its bucket. All ranks start that reduction after their last use of
// these weights, and so after their last gather of them.
//
// At most kMostReductions buckets (bucket_size.h) are in flight: another start waits for the
// oldest. Gathers of whole weights without a window are limited to kMostGathers, because with GPUs
// each needs a buffer in host memory until it is done; the others are queued.
//
// Sharded gradients are reduce-scattered for each microbatch. The first sums become this rank's
// part, further sums are added to it, and the shared buffer is zeroed for the next bucket. The last
// microbatch's reduction is followed by the all-reduce over the replicas. Used by the engine's
// thread.
class DataParallelSync {
 public:
  static constexpr size_t kMostGathers = 2;

  DataParallelSync(parameters::FlatParameters& parameters, parallel::RankGroups& groups);

  void updated(int64_t bucket);  // the optimizer has updated this rank's part
  // `is_first`, `is_last`: this is the step's first or last reduction of the bucket.
  void start_reduce(int64_t bucket, bool is_first, bool is_last);
  void poll();  // starts the second halves and queued gathers that have become possible
  // Whether a first half is in flight that a second half will follow.
  bool has_second_halves_to_start() const { return replica_ != nullptr && !first_halves_.empty(); }
  // Waits until the bucket's buffer may be filled again; unsharded gradients are then reduced.
  void wait_reduce(int64_t bucket);
  void wait_sums(int64_t bucket);  // waits for all reductions of the bucket that were started
  void finish_reductions();        // waits for all reductions

  // Starts the gather, or queues it behind those in flight.
  void start_gather(int64_t bucket);
  void wait_gather(int64_t bucket);  // returns at once if there is none
  void finish_gathers();             // waits for all gathers; the caller may then change weights

  void abandon();  // after an abort: waits until no buffer is used any more

 private:
  struct FirstHalf {
    int64_t bucket = 0;
    bool begins_sums = false;  // its result is stored in this rank's part, not added to it
    bool is_last = true;
  };
  void changed(int64_t bucket);  // negative: all
  void show_weights();           // publishes all changes in the window
  void add_in_flight(int64_t bucket);
  bool has_halves() const { return replica_ != nullptr || shards_gradients_; }
  void finish_first_half();  // the oldest
  void start_second_half(int64_t bucket);
  void start_gathers();
  void gather(int64_t bucket);

  parameters::FlatParameters& parameters_;
  comm::Communicator* data_;
  comm::Communicator* shard_;
  comm::Communicator* replica_;
  const bool shards_gradients_;
  std::unique_ptr<comm::PeerWindow> window_;  // of the flat weights; null: all-gathers instead
  int64_t shown_ = 0;                         // how often the window was published
  std::deque<FirstHalf> first_halves_;        // reduce-scatters in flight, oldest first
  std::vector<comm::WorkPtr> reductions_;     // by bucket: all-reduces, or first halves
  std::vector<comm::WorkPtr> second_halves_;  // by bucket: all-reduces over the replicas
  std::vector<int64_t> in_flight_;      // buckets with either, possibly done by now; oldest first
  std::vector<int64_t> published_in_;   // by bucket: the `shown_` that has its current weights
  std::vector<comm::WorkPtr> gathers_;  // by bucket
  bool limits_gathers_ = false;
  std::deque<int64_t> gathers_in_flight_;  // buckets, possibly done by now; oldest first
  std::deque<int64_t> queued_gathers_;     // buckets whose gather is not started yet
};

}  // namespace smp::engine
