#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "reduce/copy.h"

// Chooses how a rank writes slots for one peer, or for all: through the cache or with non-temporal
// stores. Where two CPUs share no cache, each line that the peer has read must be taken from its
// cache before it is written again. That may take ten times as long as a non-temporal store. Where
// they share one it is the other way round. No fixed choice fits, nor one made when a group begins,
// since virtual CPUs move. So copies are timed; see docs/collectives.md. A copy that is slow
// because of the memory that it reads is as slow with non-temporal stores.
namespace smp::groups {

class SlotWrites {
 public:
  using Clock = std::chrono::steady_clock;

  // In a call that about fills the cache many copies wait for memory, with either kind of stores.
  void copy(std::byte* to, const std::byte* from, int64_t bytes, bool fills_cache) {
    if (bytes < kLong) return reduce::copy_bytes(to, from, bytes);
    const CopyMode mode = next();
    if (!mode.is_timed) return reduce::copy_bytes(to, from, bytes, mode.non_temporal);
    const auto begin = Clock::now();
    reduce::copy_bytes(to, from, bytes, mode.non_temporal);
    // Stores that the CPU has put off count too.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    note(bytes, Clock::now() - begin, fills_cache);
  }

  struct CopyMode {
    bool non_temporal;
    bool is_timed;  // note() must follow
  };
  // The mode of the next long copy.
  CopyMode next() {
    if (untimed_ == 0) return {tries_ > 0, true};
    --untimed_;
    return {is_non_temporal_, false};
  }

  // Records the time of a timed copy.
  void note(int64_t bytes, Clock::duration duration, bool fills_cache) {
    const double took = std::chrono::duration<double>(duration).count() / double(bytes);
    if (tries_ > 0) return tried(took);
    if (took > kStoodStill) return;
    if (took <= (fills_cache ? kSlowOfMemory : kSlow)) {
      slow_ = std::max(0, slow_ - 1);
      is_non_temporal_ = false;
      untimed_ = kUntimed;
      return;
    }
    least_cached_ = slow_ == 0 ? took : std::min(least_cached_, took);
    if ((slow_ += kSlowWeighs) < kTooSlow) return;
    slow_ = 0;
    tries_ = kTries;
    least_non_temporal_ = std::numeric_limits<double>::max();
  }

 private:
  static constexpr int64_t kLong = 4 << 10;
  static constexpr double kSlow = 1 / 6.5e9;          // seconds per byte of a slow copy, at least
  static constexpr double kSlowOfMemory = 1 / 3.2e9;  // where the call fills the cache
  static constexpr double kStoodStill = 1 / 0.5e9;    // and at most: another process had the CPU
  // The number of quick copies that gain, over non-temporal stores, what one slow copy loses. Not
  // all copies need be slow: those for a peer on the same CPU are slow only where the other half of
  // an all_reduce has shown the lines to all.
  static constexpr int kSlowWeighs = 24, kTooSlow = 3 * kSlowWeighs;
  static constexpr int kTries = 3;      // tries of non-temporal stores; the fastest counts
  static constexpr double kGain = 0.5;  // they are kept if they take at most this part of the time
  static constexpr int kKept = 1024;    // copies of this kind before the cache is timed again
  // Copies without timing after a quick one: reading the clock takes as long as copying 3 KiB.
  static constexpr int kUntimed = 10;

  void tried(double took) {
    least_non_temporal_ = std::min(least_non_temporal_, took);
    if (--tries_ > 0) return;
    is_non_temporal_ = least_non_temporal_ < kGain * least_cached_;
    untimed_ = kKept;
  }

  int untimed_ = 0;               // copies that are still made without timing them
  bool is_non_temporal_ = false;  // whether these are non-temporal
  int slow_ = 0;                  // weight of the slow copies, less the quick ones
  int tries_ = 0;                 // tries that are left
  double least_cached_ = 0,
         least_non_temporal_ = 0;  // least seconds per byte, since copies became slow
};

}  // namespace smp::groups
