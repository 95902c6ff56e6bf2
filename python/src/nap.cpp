#include "nap.h"

#include <algorithm>
#include <thread>

namespace smp::pytorch {
namespace {

using std::chrono::microseconds;

// Whoever waits learns of the end of a call after at most an eighth more than it took.
constexpr int kShare = 8;
constexpr microseconds kShortestNap{20}, kLongestNap{500};

}  // namespace

microseconds Nap::length() const {
  const auto waited = std::chrono::duration_cast<microseconds>(Clock::now() - since_);
  return std::clamp(waited / kShare, kShortestNap, kLongestNap);
}

void Nap::take() const { std::this_thread::sleep_for(length()); }

}  // namespace smp::pytorch
