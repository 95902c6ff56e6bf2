#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "reduce/copy.h"

// How a rank writes slots for one peer, or for all: through the cache or by non-temporal stores.
// Where two CPUs share no cache, each line that the peer has read must be taken from it before it
// is written again, which may take ten times as long as a non-temporal store. Where they share one
// it is the other way round. No fixed choice fits, nor one made when a group begins, since virtual
// CPUs move. So copies are timed; see docs/collectives.md. A copy that is slow because of the
// memory that it reads is as slow with non-temporal stores.
namespace smp::groups {

class SlotWrites {
 public:
  using Clock = std::chrono::steady_clock;

  // In a call that about fills the cache many copies wait for memory, whichever way they go.
  void copy(std::byte* to, const std::byte* from, int64_t bytes, bool fills_cache) {
    if (bytes < kLong) return reduce::copy_bytes(to, from, bytes);
    const Way way = next();
    if (!way.is_timed) return reduce::copy_bytes(to, from, bytes, way.around);
    const auto begin = Clock::now();
    reduce::copy_bytes(to, from, bytes, way.around);
    // Stores that the CPU has put off count too.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    note(bytes, Clock::now() - begin, fills_cache);
  }

  struct Way {
    bool around;
    bool is_timed;  // note() must follow
  };
  // How the next long copy is made.
  Way next() {
    if (untimed_ == 0) return {tries_ > 0, true};
    --untimed_;
    return {is_around_, false};
  }

  // Takes note of how long a timed copy took.
  void note(int64_t bytes, Clock::duration duration, bool fills_cache) {
    const double took = std::chrono::duration<double>(duration).count() / double(bytes);
    if (tries_ > 0) return tried(took);
    if (took > kStoodStill) return;
    if (took <= (fills_cache ? kSlowOfMemory : kSlow)) {
      slow_ = std::max(0, slow_ - 1);
      is_around_ = false;
      untimed_ = kUntimed;
      return;
    }
    through_ = slow_ == 0 ? took : std::min(through_, took);
    if ((slow_ += kSlowWeighs) < kTooSlow) return;
    slow_ = 0;
    tries_ = kTries;
    around_ = std::numeric_limits<double>::max();
  }

 private:
  static constexpr int64_t kLong = 4 << 10;
  static constexpr double kSlow = 1 / 6.5e9;          // seconds per byte of a slow copy, at least
  static constexpr double kSlowOfMemory = 1 / 3.2e9;  // where the call fills the cache
  static constexpr double kStoodStill = 1 / 0.5e9;    // and at most: another process had the CPU
  // A slow copy loses what so many quick ones gain over non-temporal stores. Not all copies need be
  // slow: those for a peer on the same CPU are slow only where the other half of an all_reduce has
  // shown the lines to all.
  static constexpr int kSlowWeighs = 24, kTooSlow = 3 * kSlowWeighs;
  static constexpr int kTries = 3;      // tries of the other way; the quickest counts
  static constexpr double kGain = 0.5;  // it is kept if it takes at most this part of the time
  static constexpr int kKept = 1024;    // copies made so, before the cache is timed again
  // Copies that are not timed after a quick one: to read the clock takes as long as to copy 3 KiB.
  static constexpr int kUntimed = 10;

  void tried(double took) {
    around_ = std::min(around_, took);
    if (--tries_ > 0) return;
    is_around_ = around_ < kGain * through_;
    untimed_ = kKept;
  }

  int untimed_ = 0;                  // copies that are still made without timing them
  bool is_around_ = false;           // whether these are non-temporal
  int slow_ = 0;                     // weight of the slow copies, less the quick ones
  int tries_ = 0;                    // tries that are left
  double through_ = 0, around_ = 0;  // least seconds per byte, since copies became slow
};

}  // namespace smp::groups
