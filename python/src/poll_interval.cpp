#include "poll_interval.h"

#include <algorithm>
#include <thread>

namespace smp::pytorch {
namespace {

using std::chrono::microseconds;

// Whoever waits learns of the end of a call after at most an eighth more than it took.
constexpr int kShare = 8;
constexpr microseconds kShortest{20}, kLongest{500};

}  // namespace

microseconds PollInterval::length() const {
  const auto waited = std::chrono::duration_cast<microseconds>(Clock::now() - since_);
  return std::clamp(waited / kShare, kShortest, kLongest);
}

void PollInterval::sleep() const { std::this_thread::sleep_for(length()); }

}  // namespace smp::pytorch
