#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>

// How a rank writes the results of one kind of calls that about fill the last-level caches: through
// the cache or by non-temporal stores. The kernel tells how large a cache is, not who else uses it,
// so both ways are timed; see docs/lab/collective-tuning.md.
namespace smp::groups {

class ResultWrites {
 public:
  using Clock = std::chrono::steady_clock;

  // How one call writes its results.
  struct Way {
    bool around = false;
    ResultWrites* timed = nullptr;  // null: the call is not timed

    // Calls `write`, which makes results of so many bytes.
    template <class Write>
    void make(int64_t bytes, Write&& write) const {
      if (timed == nullptr) return write();
      const auto begin = Clock::now();
      write();
      timed->note(bytes, Clock::now() - begin);
    }
  };

  // Takes note of how long results of the call that began last took.
  void note(int64_t bytes, Clock::duration took) {
    bytes_ += double(bytes);
    took_ += double(took.count());
  }

  // How the next call writes. All ranks make the same calls in the same order, so all try the other
  // way in the same calls: several in a row, since the first finds the cache as the usual way has
  // left it.
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
  // Calls of a period, of which the last ones try the other way. The first periods are shorter.
  static constexpr int kPeriod = 512;
  static constexpr int kTried = 4;  // of so many, and as many before them, the quickest counts
  // The other way must take less than this part of the usual time.
  static constexpr double kBetter = 0.9;
  static constexpr double kUnknown = std::numeric_limits<double>::max();

  bool is_trying() const { return at_ >= kPeriod - kTried; }

  int period_ = 4 * kTried;
  int at_ = kPeriod - period_;
  bool is_around_ = false;
  double took_ = 0, bytes_ = 0;  // of the last call
  double usual_ = kUnknown, tried_ = kUnknown;
};

}  // namespace smp::groups
