#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "copy.h"

// How a rank writes its slots: by how long that takes. Where two CPUs share no cache, each line
// that the other has read must be taken away from it before it is written, which may take ten times
// as long as to write it around the cache. Where they do share one it is the other way about. On a
// Zen 4 whose two virtual CPUs were at times so, at times so, slots went from one to the other
// at 2.5 GB/s and around the cache at 22, or at 27 and 15 (smp_slots). No fixed choice fits, nor
// does one made when a group begins, for virtual CPUs move: so copies are timed.
namespace smp::shm {

class SlotWrites {
 public:
  using Clock = std::chrono::steady_clock;

  // Copies to a slot. `is_timed`: what is read is likely to be in a cache.
  void copy(std::byte* to, const std::byte* from, int64_t bytes, bool is_timed) {
    const bool around = go_around(bytes);
    if (around || !is_timed || bytes < kTimed) return copy_bytes(to, from, bytes, around);
    if (untimed_ > 0) {
      --untimed_;
      return copy_bytes(to, from, bytes);
    }
    const auto begin = Clock::now();
    copy_bytes(to, from, bytes);
    note(bytes, Clock::now() - begin);
  }

  // Whether so many bytes are now written around the cache.
  bool go_around(int64_t bytes) {
    if (bytes < kTimed || around_ == 0) return false;
    --around_;
    return true;
  }

  // That a copy through the cache took so long.
  void note(int64_t bytes, Clock::duration took) {
    const double seconds = std::chrono::duration<double>(took).count();
    if (seconds > kStoodStill * double(bytes)) return;
    const bool is_slow = seconds > kSlow * double(bytes);
    slow_ = is_slow ? slow_ + 1 : 0;
    untimed_ = is_slow ? 0 : kUntimed;
    if (slow_ < kInARow) return;
    slow_ = 0;
    around_ = kAround;
  }

 private:
  static constexpr int64_t kTimed = 16 << 10;
  static constexpr double kSlow = 1 / 3.2e9;        // seconds of a byte, at least
  static constexpr double kStoodStill = 1 / 0.5e9;  // and at most: a rank that shares its CPU waits
  static constexpr int kInARow = 3;
  static constexpr int kAround = 1024;  // copies, then the cache is tried again
  // Copies after one that was not slow: to look at clocks takes 0.05 us, a copy of 64 KiB 1.2.
  static constexpr int kUntimed = 10;

  int untimed_ = 0;  // copies that are left
  int slow_ = 0;     // one after the other
  int around_ = 0;   // copies that are left
};

}  // namespace smp::shm
