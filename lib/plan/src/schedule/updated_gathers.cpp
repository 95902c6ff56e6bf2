#include "schedule/updated_gathers.h"

#include <algorithm>

#include "smp/plan/base/check.h"

namespace smp::schedule {

UpdatedGathers::UpdatedGathers(std::vector<Action>& actions, size_t buckets, int64_t most,
                               bool is_last_whole)
    : actions_(actions), most_(most), is_whole_(buckets, false) {
  for (size_t b = buckets; b-- > 0;) {
    if (is_last_whole && b + 1 == buckets) {
      is_whole_[b] = true;
    } else if (most_ == 0 || static_cast<int64_t>(in_flight_.size()) < most_) {
      in_flight_.push_back(b);
    } else {
      to_start_.push_back(b);
    }
  }
}

void UpdatedGathers::emit(ActionKind kind, size_t bucket) {
  actions_.push_back({.kind = kind, .bucket = static_cast<int32_t>(bucket)});
}

void UpdatedGathers::updated(size_t bucket) {
  is_whole_[bucket] = false;
  to_start_.push_back(bucket);
  start_gathers();
}

void UpdatedGathers::start_gathers() {
  while (!to_start_.empty() && (most_ == 0 || static_cast<int64_t>(in_flight_.size()) < most_)) {
    emit(ActionKind::kGather, to_start_.front());
    in_flight_.push_back(to_start_.front());
    to_start_.pop_front();
  }
}

void UpdatedGathers::make_whole(size_t bucket) {
  const auto wait = [&](std::deque<size_t>::iterator at) {
    emit(ActionKind::kGatherWait, *at);
    is_whole_[*at] = true;
    in_flight_.erase(at);
    start_gathers();
  };
  while (!is_whole_[bucket]) {
    const auto own = std::find(in_flight_.begin(), in_flight_.end(), bucket);
    SMP_CHECK(!in_flight_.empty());
    wait(own != in_flight_.end() ? own : in_flight_.begin());
  }
}

}  // namespace smp::schedule
