#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace smp::testing {

// Within this ends what does not wait for its time-out, however busy the machine is: much longer
// than it takes (the sweeps and docs/ have figures), much shorter than the time-outs of the tests.
inline constexpr std::chrono::seconds kSoon{20};
inline constexpr std::chrono::seconds kNever{120};  // a time-out that would be seen

inline double milliseconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

inline double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace smp::testing
