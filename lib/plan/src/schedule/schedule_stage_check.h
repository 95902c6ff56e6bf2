#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "schedule/shard_actions.h"
#include "smp/plan/schedule/schedule.h"

namespace smp::schedule {

// A StageCheck follows one stage's actions in order and decides which action may come next. It
// knows which data exist, which have arrived and which gradients are complete, from the schedule's
// parameters alone. Rules that involve two stages (matching messages, waiting) belong to verify().
// Used by one thread.
//
// A *unit* is a microbatch in a chunk.
class StageCheck {
 public:
  StageCheck(const ScheduleParameters& parameters, int64_t stage, int64_t live_bound);

  // Returns the rule that `action` breaks, if any. A wait is applied when it has ended.
  std::optional<std::string> apply(const Action& action);

  // Whether `action` waits for a message that this stage has started and not waited for yet.
  bool waits_for_started(const Action& action) const;

  // Number of a message among those that the stage sends or receives in a step, below
  // message_slots(). The action must have been applied, or waits_for_started().
  size_t message_slot(const Action& action) const;
  size_t message_slots() const { return messages_.size(); }

  // The first action that is missing at the end of the list.
  std::optional<std::string> missing_at_end() const;

 private:
  using Problem = std::optional<std::string>;
  enum class Progress : uint8_t { kNone, kStarted, kEnded };

  Problem forward(const Action& action);
  Problem backward(const Action& action);
  Problem weight(const Action& action);
  Problem start_message(const Action& action);
  Problem end_message(const Action& action);
  Problem recompute(const Action& action);
  Problem offload(const Action& action);
  Problem fetch(const Action& action);
  // From complete gradients to the end of the step (schedule_stage_step.cpp).
  Problem reduce_kv(const Action& action);
  Problem reduce(const Action& action);
  Problem end_reduction(const Action& action);
  Problem reduce_replicas(const Action& action);
  Problem end_replicas(const Action& action);
  Problem too_many_reductions() const;
  Problem router_loads();
  Problem gradient_norm(const Action& action);
  Problem step();
  Problem update(const Action& action);
  Problem not_updated(const Action& action) const;  // for a layer's action
  Problem gather(const Action& action);
  Problem end_bucket(const Action& action, std::vector<Progress>& buckets);

  // Sharded weights and gradients (schedule_stage_shards.cpp).
  bool shards_gradients() const { return !gradient_buffers_.empty(); }
  bool shards_weights() const { return !weight_buffers_.empty(); }
  Problem shards_ready(const Action& action) const;  // for a layer's action
  Problem reduce_shards(const Action& action);
  Problem end_microbatch(const Action& action);
  Problem gather_shards(const Action& action);
  Problem free_weights(const Action& action);
  Problem weights_freed() const;

  Problem unit_of(const Action& action) const;
  Problem place_of(const Action& action) const;
  Problem peer_of(const Action& action) const;
  Problem peer_of_tied(const Action& action) const;
  Problem data_for(const Action& action) const;
  Problem everything_reduced() const;
  Problem reduced(size_t bucket) const;
  Problem shards_reduced(size_t bucket) const;
  Problem norms_missing() const;
  bool gathers_within_step(size_t bucket) const;
  Progress gathered_at_begin(size_t bucket) const;
  Problem end_gather(const Action& action);
  Problem gradients_of(int64_t first, int64_t last) const;
  Problem not_kept(const Action& action) const;
  Problem on_host(const Action& action) const;
  Problem kept_missing(const Action& action) const;
  Problem input_missing(const Action& action, Payload payload) const;
  void gradient_done(const Action& action);

  int64_t place(int64_t layer) const;  // index in layers_; layers_.size() = not on this stage
  bool is_block(int64_t layer) const { return layer > 0 && layer != head_; }
  bool has_bucket(int64_t bucket) const;
  std::pair<int64_t, int64_t> places_of(size_t bucket) const;
  size_t unit(int64_t chunk, int64_t microbatch) const;
  size_t call(const Action& action) const;  // a microbatch in a layer
  size_t unit(const Action& action) const { return unit(action.chunk, action.microbatch); }
  const std::vector<int64_t>& chunk_layers(const Action& action) const;
  size_t message_slot(Payload payload, size_t unit, bool sent) const;
  bool arrived(Payload payload, size_t unit) const;
  bool gradient_complete(size_t place) const;
  bool kv_summed(int64_t layer, int64_t microbatch) const;

  const ScheduleParameters& parameters_;
  const ScheduleShape& shape_;
  const std::vector<std::vector<int64_t>>& chunks_;
  const int64_t stage_;
  const int64_t last_stage_;
  const int64_t live_bound_;
  const bool splits_;            // weight gradients are actions of their own
  std::vector<int64_t> layers_;  // of all chunks
  int64_t head_ = -1;            // last layer of the model
  std::vector<int64_t> bucket_first_layers_, bucket_last_layers_;
  // Layers passed, by unit.
  std::vector<int32_t> forwards_, backwards_, weights_;
  std::vector<bool> recomputed_;     // by call; empty without recomputation
  std::vector<Progress> offloaded_;  // the same
  std::vector<int64_t> gradients_;   // microbatches whose gradient was added, by place of the layer
  int64_t live_ = 0;
  std::vector<Progress> messages_;                    // by payload, direction and unit
  std::set<std::pair<int64_t, int64_t>> reduced_kv_;  // layer, last microbatch of the sum
  std::vector<Progress> reduced_, gathered_;          // by bucket
  std::vector<Progress> replicas_;                    // by bucket: of the sums over replicas
  std::vector<bool> has_norm_;                        // by bucket
  std::vector<bool> is_updated_;  // by bucket: since its last gather has started
  int64_t gathers_ = 0;           // of updated weights, in flight
  int64_t in_flight_ = 0;         // reductions, of both halves
  std::vector<bool> updated_;     // by bucket; one entry without buckets
  const LayerBuckets buckets_;
  std::vector<int32_t> gradient_buffers_, weight_buffers_;  // by bucket
  std::vector<int64_t> reductions_;                         // started reductions, by bucket
  bool has_loads_ = false;                                  // of the routers
  bool stepped_ = false;
};

}  // namespace smp::schedule
