#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "smp/plan/schedule.h"

namespace smp {

// A StageCheck follows one stage's actions in order and knows what may come next, from the
// schedule's parameters alone: which data exist, which have arrived, which gradients are complete.
// What needs two stages (matching messages, waiting) is verify()'s. Used by one thread.
class StageCheck {
 public:
  StageCheck(const ScheduleParameters& parameters, int64_t stage, int64_t live_bound);

  // The rule that `action` breaks, if any. A wait is applied when it has ended.
  std::optional<std::string> apply(const Action& action);

  // What is missing when the list has ended.
  std::optional<std::string> missing_at_end() const;

 private:
  using Problem = std::optional<std::string>;
  enum class Progress { kStarted, kEnded };
  // Payload, microbatch, whether sent.
  using Message = std::tuple<Payload, int64_t, bool>;

  Problem forward(const Action& action);
  Problem backward(const Action& action);
  Problem start_message(const Action& action);
  Problem end_message(const Action& action);
  Problem reduce_kv(const Action& action);
  Problem reduce(const Action& action);
  Problem step();
  Problem gather(const Action& action);
  Problem end_bucket(const Action& action, std::map<int64_t, Progress>& buckets);

  Problem place_of(const Action& action) const;
  Problem peer_of(const Action& action) const;
  Problem data_for(const Action& action) const;
  Problem everything_reduced() const;
  bool has_bucket(int64_t bucket) const;
  bool arrived(Payload payload, int64_t microbatch) const;
  bool backward_complete(int64_t layer) const;
  int64_t last_layer_of_bucket(int64_t bucket) const;

  const ScheduleParameters& parameters_;
  const std::vector<int64_t>& layers_;
  const int64_t stage_;
  const int64_t last_stage_;
  const int64_t live_bound_;
  std::vector<int64_t> bucket_first_layers_;
  std::vector<size_t> forwards_;   // layers passed, by microbatch
  std::vector<size_t> backwards_;  // likewise
  int64_t live_ = 0;
  std::map<Message, Progress> messages_;
  std::set<int64_t> reduced_kv_;
  std::map<int64_t, Progress> reduced_;
  std::map<int64_t, Progress> gathered_;
  bool stepped_ = false;
};

}  // namespace smp
