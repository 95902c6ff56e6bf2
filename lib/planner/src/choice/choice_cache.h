#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "smp/planner/choice/layout_choice.h"

namespace smp::choice {

// The last values of a function of layouts, each in the one place that its key hashes to. A search
// asks for layouts in an order in which neighbours share most of what they are made of. One thread.
template <class Value>
class ChoiceCache {
 public:
  explicit ChoiceCache(size_t places) : count_(places) {}  // a power of two

  // `make()` is the value of the key. The reference is valid until the next call.
  template <class Make>
  const Value& of(const LayoutChoice& key, Make make) {
    if (places_.empty()) places_.resize(count_);
    Place& place = places_[hash_of(key) & (count_ - 1)];
    if (!place.value || place.key != key) {
      place.value.emplace(InPlace<Make>{make});
      place.key = key;
    }
    return *place.value;
  }

 private:
  // Values are large: made where they stay, not copied there.
  template <class Make>
  struct InPlace {
    Make& make;
    operator Value() const { return make(); }
  };
  struct Place {
    LayoutChoice key;
    std::optional<Value> value;
  };

  static size_t hash_of(const LayoutChoice& key) {
    uint64_t hash = 0;
    const auto mix = [&hash](int64_t number) {  // as in Knuth's multiplicative hashing
      hash = (hash ^ static_cast<uint64_t>(number)) * 0x9e3779b97f4a7c15U;
    };
    mix(int64_t{key.pipeline} << 32 | key.tensor);
    mix(int64_t{key.context} << 32 | key.expert << 10 | key.exchange);
    mix(int64_t{key.shard} << 32 | key.micro_batch);
    mix(int64_t{key.microbatches} << 32 | key.virtual_stages);
    mix(int64_t{key.first_stage_layers} << 32 | key.last_stage_layers);
    mix(int64_t{key.recompute_layers} << 32 | static_cast<int64_t>(key.schedule) << 16 |
        static_cast<int64_t>(key.sharding) << 8 | static_cast<int64_t>(key.recompute) << 4 |
        key.sequence_parallel << 3 | key.offload_activations << 2 | key.offload_optimizer << 1 |
        static_cast<int64_t>(is_spread(key.placement)));
    return static_cast<size_t>(hash >> 32);
  }

  size_t count_;
  std::vector<Place> places_;  // made when first used
};

}  // namespace smp::choice
