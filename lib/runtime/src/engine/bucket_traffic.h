#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "smp/comm/communicator.h"
#include "smp/runtime/parallel/groups.h"
#include "smp/runtime/parameters/flat_parameters.h"

namespace smp::engine {

// Moves gradient buckets and weights over the data-parallel ranks, in place in the buffers of
// FlatParameters, while the engine computes.
//
// Without sharding a bucket's gradients are summed over the data group. With it they are
// reduce-scattered over the shard group, so that shard i ends with the sums of part i, which is
// then summed over the replicas; once they are updated the parts of the weights are gathered again.
// Second halves start in the order of the first, whatever finishes first, so that all replicas
// agree on it.
//
// Updated weights are shown in a window, and copied from there by whoever needs them, so that
// gathering is no meeting. A rank changes its part only after the reduction of its bucket, which
// all ranks have started after their last use of these weights, and so after their last gather.
//
// No more than kMostReductions buckets (bucket_size.h) are under way: who starts another waits for
// the oldest. Of gathers of whole weights that are calls by the host kMostGathers are; others start
// when those are there. On GPUs each of them has a buffer of the host until it is through.
//
// Sharded gradients are scattered microbatch by microbatch: the first sums become this rank's part,
// further ones are added to it, and the shared buffer is left zeroed for the next bucket; the last
// microbatch's is followed by the sum over the replicas. Used by the engine's thread.
class BucketTraffic {
 public:
  static constexpr size_t kMostGathers = 2;

  BucketTraffic(parameters::FlatParameters& parameters, parallel::RankGroups& groups);

  void updated(int64_t bucket);  // by the optimizer
  // Of the step's reductions of this bucket, the first and the last one.
  void start_reduce(int64_t bucket, bool is_first, bool is_last);
  void poll();  // starts what a finished first half, or gather, has made possible
  // Whether a first half is under way whose second half is to be started then.
  bool has_second_halves_to_start() const { return replica_ != nullptr && !first_halves_.empty(); }
  // The bucket's buffer may be filled again; where gradients are whole, its sums are there.
  void wait_reduce(int64_t bucket);
  void wait_sums(int64_t bucket);  // of its reductions that were started
  void finish_reductions();        // all sums are there

  // Now, or when those before it are there.
  void start_gather(int64_t bucket);
  void wait_gather(int64_t bucket);  // at once where none is under way: the weights are whole
  void finish_gathers();             // whoever calls may now change the weights

  void abandon();  // waits, after an abort, until nothing moves any more

 private:
  struct FirstHalf {
    int64_t bucket = 0;
    bool begins_sums = false;  // they are this rank's part already
    bool is_last = true;
  };
  void changed(int64_t bucket);  // negative: all
  void show_weights();           // all that have changed since the last time
  void add_under_way(int64_t bucket);
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
  std::unique_ptr<comm::PeerWindow>
      window_;                             // of the flat weights; null: they are gathered together
  int64_t shown_ = 0;                      // times
  std::deque<FirstHalf> first_halves_;     // under reduce-scatter, oldest first
  std::vector<comm::WorkPtr> reductions_;  // by bucket: sums of all, or first halves
  std::vector<comm::WorkPtr> second_halves_;  // by bucket: sums over the replicas
  std::vector<int64_t> under_way_;            // buckets that have either, or had; oldest first
  std::vector<int64_t> good_since_;     // by bucket: the time that showed its weights as they are
  std::vector<comm::WorkPtr> gathers_;  // by bucket
  bool limits_gathers_ = false;
  std::deque<int64_t> under_gather_;  // buckets, or there by now; oldest first
  std::deque<int64_t> to_gather_;     // behind them
};

}  // namespace smp::engine
