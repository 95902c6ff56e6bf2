#include "net/group_keys.h"

namespace smp::net {

uint64_t mix(uint64_t hash, uint64_t value) {
  hash += value + 0x9e3779b97f4a7c15;
  hash = (hash ^ hash >> 30) * 0xbf58476d1ce4e5b9;
  hash = (hash ^ hash >> 27) * 0x94d049bb133111eb;
  return hash ^ hash >> 31;
}

uint64_t GroupKeys::next(const std::vector<int>& globals) {
  uint64_t key = mix(parent_, ++splits_[globals]);
  for (const int rank : globals) key = mix(key, uint64_t(rank) + 1);
  return key;
}

}  // namespace smp::net
