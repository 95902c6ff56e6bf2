#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace smp::net {

inline constexpr uint64_t kWorldKey = 1;

uint64_t mix(uint64_t hash, uint64_t value);  // splitmix64

// Makes the keys of the groups that are split off one group. A key is the same on all ranks of a
// group without a message, and different for each split of the same ranks.
class GroupKeys {
 public:
  explicit GroupKeys(uint64_t parent) : parent_(parent) {}
  uint64_t next(const std::vector<int>& globals);  // the ranks, as ranks of the job

 private:
  const uint64_t parent_;
  std::map<std::vector<int>, uint64_t> splits_;
};

}  // namespace smp::net
