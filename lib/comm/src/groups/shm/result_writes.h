#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>

// Chooses how a rank writes the results of one kind of calls that about fill the last-level caches:
// through the cache or with non-temporal stores. The kernel tells how large a cache is, but not who
// else uses it. So both kinds of stores are timed; see docs/lab/collective-tuning.md.
namespace smp::groups {

class ResultWrites {
 public:
  using Clock = std::chrono::steady_clock;

  // How one call writes its results.
  struct StorePolicy {
    bool non_temporal = false;
    ResultWrites* timed = nullptr;  // null: the call is not timed

    // Calls `write`, which writes results of `bytes` bytes.
    template <class Write>
    void make(int64_t bytes, Write&& write) const {
      if (timed == nullptr) return write();
      const auto begin = Clock::now();
      write();
      timed->note(bytes, Clock::now() - begin);
    }
  };

  // Records the time of results of the call that began last.
  void note(int64_t bytes, Clock::duration took) {
    bytes_ += double(bytes);
    took_ += double(took.count());
  }

  // The policy of the next call. All ranks make the same calls in the same order, so all try the
  // other kind of stores in the same calls. They try it several times in a row, since the first
  // finds the cache as the usual kind has left it.
  StorePolicy next() {
    const double took = bytes_ > 0 ? took_ / bytes_ : kUnknown;
    took_ = bytes_ = 0;
    double& least = is_trying() ? tried_ : usual_;
    least = std::min(least, took);
    if (++at_ == kPeriod) {
      if (usual_ < kUnknown && tried_ < kBetter * usual_) is_non_temporal_ = !is_non_temporal_;
      usual_ = tried_ = kUnknown;
      period_ = std::min(2 * period_, kPeriod);
      at_ = kPeriod - period_;
    }
    return {is_non_temporal_ != is_trying(), at_ >= kPeriod - 2 * kTried ? this : nullptr};
  }

 private:
  // Calls of a period, of which the last ones try the other kind. The first periods are shorter.
  static constexpr int kPeriod = 512;
  static constexpr int kTried = 4;  // the fastest of these counts, and of as many before them
  // The other kind must take less than this part of the usual time.
  static constexpr double kBetter = 0.9;
  static constexpr double kUnknown = std::numeric_limits<double>::max();

  bool is_trying() const { return at_ >= kPeriod - kTried; }

  int period_ = 4 * kTried;
  int at_ = kPeriod - period_;
  bool is_non_temporal_ = false;
  double took_ = 0, bytes_ = 0;  // of the last call
  double usual_ = kUnknown, tried_ = kUnknown;
};

}  // namespace smp::groups
