#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "smp/comm/communicator.h"
#include "smp/runtime/parallel/groups.h"
#include "smp/runtime/parameters/flat_parameters.h"

namespace smp::engine {

// Executes the schedule's reductions of gradient buckets and gathers of weights over the
// data-parallel ranks, in place in the buffers of FlatParameters. The schedule says when each call
// starts and when it is waited for.
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
// A bucket's experts (layout::Bucket::experts) go with it, over the ranks that hold the same part
// of the experts.
//
// Sharded gradients are reduce-scattered for each microbatch. The first sums become this rank's
// part, further sums are added to it, and the shared buffer is zeroed for the next bucket. Used by
// the engine's thread.
class DataParallelSync {
 public:
  DataParallelSync(parameters::FlatParameters& parameters, parallel::RankGroups& groups);

  void updated(int64_t bucket);  // the optimizer has updated this rank's part
  // `is_first`: this is the step's first reduction of the bucket.
  void start_reduce(int64_t bucket, bool is_first);
  void finish_reduce(int64_t bucket, bool is_first);  // its buffer may then be filled again
  void start_replicas(int64_t bucket);                // the second half
  void finish_replicas(int64_t bucket);

  // Whole weights are gathered once after each update: before the first one they are whole.
  void start_gather(int64_t bucket);
  void finish_gather(int64_t bucket);
  // With no gather in flight. Waits for peers that still read this rank's weights; the caller may
  // then change or free them.
  void release_weights();

  void abandon();  // after an abort: waits until no buffer is used any more

 private:
  // The ranks that hold the same parts of a bucket, or its replicas; null: this rank is alone.
  struct Peers {
    comm::Communicator* data = nullptr;
    comm::Communicator* shard = nullptr;
    comm::Communicator* replica = nullptr;
    const char *gradients = nullptr, *weights = nullptr;  // labels
    std::unique_ptr<comm::PeerWindow> window =
        {};             // of the flat weights; null: all-gathers instead
    int64_t shown = 0;  // how often the window was published
  };
  const layout::Bucket& bucket_at(int64_t bucket) const;
  Peers& peers_of(int64_t bucket) {
    return bucket_at(bucket).is_of_experts ? of_experts_ : of_others_;
  }
  // Calls body(index) with the bucket and with its experts, if it has any.
  template <typename Body>
  void with_experts(int64_t bucket, const Body& body) {
    body(bucket);
    if (bucket_at(bucket).experts >= 0) body(bucket_at(bucket).experts);
  }

  void open_window(Peers& peers) const;
  void changed(const Peers& peers);
  void show_weights(Peers& peers);  // publishes all changes in the window
  // Of one bucket, without its experts.
  void mark_updated(int64_t bucket);
  void start_reduce_of(int64_t bucket, bool is_first);
  void finish_reduce_of(int64_t bucket, bool is_first);
  void start_replicas_of(int64_t bucket);
  void start_gather_of(int64_t bucket);

  parameters::FlatParameters& parameters_;
  Peers of_others_, of_experts_;
  const bool shards_gradients_;
  const bool shards_weights_;
  std::vector<comm::WorkPtr> reductions_;     // by bucket: all-reduces, or first halves
  std::vector<comm::WorkPtr> second_halves_;  // by bucket: all-reduces over the replicas
  std::vector<int64_t> published_in_;   // by bucket: the `shown_` that has its current weights
  std::vector<bool> is_updated_;        // by bucket: since its last gather has started
  std::vector<comm::WorkPtr> gathers_;  // by bucket
};

}  // namespace smp::engine
