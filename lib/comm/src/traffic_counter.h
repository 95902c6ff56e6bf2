#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "smp/comm/communicator.h"

namespace smp {

// Calls and payload bytes of one group, by label and op. Safe from any thread.
class TrafficCounter {
 public:
  void add(const std::string& label, CollectiveOp op, int64_t wire_bytes) {
    std::lock_guard guard(mutex_);
    Sum& sum = sums_[{label, op}];
    ++sum.calls;
    sum.wire_bytes += wire_bytes;
  }

  std::vector<TrafficCount> counts(int group_size) const {
    std::lock_guard guard(mutex_);
    std::vector<TrafficCount> counts;
    for (const auto& [key, sum] : sums_)
      counts.push_back({key.first, key.second, group_size, sum.calls, sum.wire_bytes});
    return counts;
  }

 private:
  struct Sum {
    int64_t calls = 0;
    int64_t wire_bytes = 0;
  };
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, CollectiveOp>, Sum> sums_;
};

}  // namespace smp
