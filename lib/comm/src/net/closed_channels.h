#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>

namespace smp::net {

// The latest channels that were closed here, with the number of pieces that each has written.
// Control messages about a closed channel arrive soon or never. Channels are not opened again.
class ClosedChannels {
 public:
  static constexpr size_t kMost = 1024;

  void add(uint64_t channel, uint64_t written) {
    if (!written_.insert_or_assign(channel, written).second) return;
    order_.push_back(channel);
    if (order_.size() <= kMost) return;
    written_.erase(order_.front());
    order_.pop_front();
  }
  // Nothing if the channel was not closed here, or was closed long ago.
  std::optional<uint64_t> written_by(uint64_t channel) const {
    const auto found = written_.find(channel);
    return found == written_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  std::map<uint64_t, uint64_t> written_;
  std::deque<uint64_t> order_;  // the first was closed first
};

}  // namespace smp::net
