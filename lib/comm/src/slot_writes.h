#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "copy.h"

// How a rank writes what one peer reads in its slots, or what all read: by how long that takes.
// Some peers may be on the same CPU. Where two CPUs share no cache, each line that the other has
// read must be taken away from it before it is written, which may take ten times as long as to
// write it around the cache. Where they do share one it is the other way about. On a Zen 4 whose
// two virtual CPUs were at times so, at times so, slots went from one to the other at 2.5 GB/s and
// around the cache at 22, or at 27 and 15 (smp_slots). No fixed choice fits, nor does one made when
// a group begins, for virtual CPUs move: so copies are timed. Those that are slow because memory
// is, where what is copied lies, are so around the cache too.
namespace smp::shm {

class SlotWrites {
 public:
  using Clock = std::chrono::steady_clock;

  void copy(std::byte* to, const std::byte* from, int64_t bytes) {
    if (bytes < kLong) return copy_bytes(to, from, bytes);
    const Way way = next();
    if (!way.is_timed) return copy_bytes(to, from, bytes, way.around);
    const auto begin = Clock::now();
    copy_bytes(to, from, bytes, way.around);
    std::atomic_thread_fence(std::memory_order_seq_cst);  // what the CPU has put off is part of it
    note(bytes, Clock::now() - begin);
  }

  struct Way {
    bool around;
    bool is_timed;  // note() follows
  };
  // Of the next long copy.
  Way next() {
    if (untimed_ == 0) return {tries_ > 0, true};
    --untimed_;
    return {is_around_, false};
  }

  // That this copy took so long.
  void note(int64_t bytes, Clock::duration duration) {
    const double took = std::chrono::duration<double>(duration).count() / double(bytes);
    if (tries_ > 0) return tried(took);
    if (took > kStoodStill) return;
    if (took <= kSlow) {
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
  static constexpr double kSlow = 1 / 3.2e9;        // seconds of a byte, at least
  static constexpr double kStoodStill = 1 / 0.5e9;  // and at most: the CPU was another's
  // A slow copy loses what so many quick ones gain over those around the cache. Not all need be
  // slow: those of a peer on the same CPU are where an all_reduce's other half has shown the lines
  // to all.
  static constexpr int kSlowWeighs = 24, kTooSlow = 3 * kSlowWeighs;
  static constexpr int kTries = 3;      // of the other way; the quickest counts
  static constexpr double kGain = 0.5;  // of the time, at most, for it to be kept
  static constexpr int kKept = 1024;    // copies, then the cache is timed again
  // Copies after one that was not slow: to look at clocks takes 0.05 us, a copy of 64 KiB 1.2.
  static constexpr int kUntimed = 10;

  void tried(double took) {
    around_ = std::min(around_, took);
    if (--tries_ > 0) return;
    is_around_ = around_ < kGain * through_;
    untimed_ = kKept;
  }

  int untimed_ = 0;                  // copies that are left,
  bool is_around_ = false;           // in this way
  int slow_ = 0;                     // slow copies, each by its weight, less the quick ones
  int tries_ = 0;                    // that are left
  double through_ = 0, around_ = 0;  // the least seconds of a byte, when they were slow last
};

}  // namespace smp::shm
