#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "smp/comm/communicator.h"

namespace smp::comm {

// Calls and payload bytes of one group, by label and op. One thread at a time adds; any may read.
class TrafficCounter {
 public:
  void add(const std::string& label, mesh::CollectiveOp op, int64_t wire_bytes) {
    if (last_ == sums_.end() || last_->first.second != op || last_->first.first != label) {
      std::lock_guard guard(mutex_);
      last_ = sums_.try_emplace({label, op}).first;
    }
    Sum& sum = last_->second;
    sum.calls.store(sum.calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    sum.wire_bytes.store(sum.wire_bytes.load(std::memory_order_relaxed) + wire_bytes,
                         std::memory_order_relaxed);
  }

  std::vector<TrafficCount> counts(int group_size) const {
    std::lock_guard guard(mutex_);
    std::vector<TrafficCount> counts;
    for (const auto& [key, sum] : sums_)
      counts.push_back(
          {key.first, key.second, group_size, sum.calls.load(), sum.wire_bytes.load()});
    return counts;
  }

 private:
  struct Sum {
    std::atomic<int64_t> calls{0};
    std::atomic<int64_t> wire_bytes{0};
  };
  using Sums = std::map<std::pair<std::string, mesh::CollectiveOp>, Sum>;
  mutable std::mutex mutex_;  // of the map's shape
  Sums sums_;
  Sums::iterator last_ = sums_.end();  // calls often come several times in a row
};

}  // namespace smp::comm
