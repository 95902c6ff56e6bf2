#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace smp::testing {

// Within this ends what does not wait for its time-out, however busy the machine is: much longer
// than it takes (the sweeps and docs/ have figures), much shorter than the time-outs of the tests.
inline constexpr std::chrono::seconds kSoon{20};
inline constexpr std::chrono::seconds kHeard{1};    // of calls that do not match, by all
inline constexpr std::chrono::seconds kNever{120};  // a time-out that would be seen

inline double milliseconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

// Whether what is tried is within the limit at least once, however busy the machine is: it may hold
// up some tries, but what always takes longer is found. `milliseconds` tries and gives what it
// took.
template <class Milliseconds>
bool is_once_within(std::chrono::milliseconds limit, const Milliseconds& milliseconds) {
  constexpr int kTries = 4;  // the machine may stand still in one
  const auto begin = std::chrono::steady_clock::now();
  for (int tries = 0; tries < kTries || std::chrono::steady_clock::now() - begin < kSoon; ++tries)
    if (milliseconds() < double(limit.count())) return true;
  return false;
}

inline double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace smp::testing
