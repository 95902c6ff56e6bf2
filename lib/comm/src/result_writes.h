#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>

// How a rank writes the results of one kind of calls that about fill the last caches: through these
// or around them, by how long that takes. The kernel says how large a cache is, not who else is
// using it. On a Zen 4 whose cache of 32 MiB others shared direct all_gathers that touched 20 MiB
// of it took half of the time through it, all_reduces that touched 32 MiB 0.6 to 0.8,
// reduce_scatters of 40 MiB 1.4 times as long (docs/collective-tuning.md).
namespace smp::shm {

class ResultWrites {
 public:
  using Clock = std::chrono::steady_clock;

  // One call's.
  struct Way {
    bool around = false;
    ResultWrites* timed = nullptr;  // null: nobody asks how long it takes

    // Has `write` make the results of so many bytes.
    template <class Write>
    void make(int64_t bytes, Write&& write) const {
      if (timed == nullptr) return write();
      const auto begin = Clock::now();
      write();
      timed->note(bytes, Clock::now() - begin);
    }
  };

  // That results of so many bytes took so long, of the call that began last.
  void note(int64_t bytes, Clock::duration took) {
    bytes_ += double(bytes);
    took_ += double(took.count());
  }

  // Of the next call. All ranks make the same calls in the same order, so all try the other way in
  // the same ones: several in a row, for the first finds what the usual way has left in the cache.
  Way next() {
    const double took = bytes_ > 0 ? took_ / bytes_ : kUnknown;
    took_ = bytes_ = 0;
    double& least = is_trying() ? tried_ : usual_;
    least = std::min(least, took);
    if (++at_ == kPeriod) {
      if (usual_ < kUnknown && tried_ < kBetter * usual_) is_around_ = !is_around_;
      usual_ = tried_ = kUnknown;
      period_ = std::min(2 * period_, kPeriod);
      at_ = kPeriod - period_;
    }
    return {is_around_ != is_trying(), at_ >= kPeriod - 2 * kTried ? this : nullptr};
  }

 private:
  // Calls, of which the last ones try the other way; fewer at first.
  static constexpr int kPeriod = 512;
  static constexpr int kTried = 4;  // of so many, and as many before them, the quickest counts
  static constexpr double kBetter = 0.9;  // of the usual time
  static constexpr double kUnknown = std::numeric_limits<double>::max();

  bool is_trying() const { return at_ >= kPeriod - kTried; }

  int period_ = 4 * kTried;
  int at_ = kPeriod - period_;
  bool is_around_ = false;
  double took_ = 0, bytes_ = 0;  // in the last call
  double usual_ = kUnknown, tried_ = kUnknown;
};

}  // namespace smp::shm
