#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace smp {

// Each byte of the buffers of timed calls: normal numbers in all types, of which sums in place grow
// to infinity, which takes no longer. Not zeros: a Zen 4 writes those around its caches quicker
// than anything else, so calls would look quicker than training has them
// (docs/lab/figures-collectives.md).
inline constexpr int kTimedByte = 0x3c;

// Keeps the ranks busy together for 0.3 s after their start: until then the kernel has often not
// spread them over the CPUs, and where they are more than those, short calls take up to twice as
// long. most(s) is a call of all ranks that gives each the largest of theirs.
template <class Most>
void let_settle(const Most& most) {
  constexpr double kSettlingS = 0.3;
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&start] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  while (most(seconds()) < kSettlingS) {
  }
}

// How many calls take about `sample_s` seconds, from 1 to `most`, where seconds_of(n) makes n calls
// and says how long they took. All ranks choose alike if it says the same to each.
//
// The first calls take longer: memory is new to the caches. So batches grow until one takes about
// as long as a sample, which warms up too; the first never counts.
template <class SecondsOf>
int calls_of_a_sample(double sample_s, int most, const SecondsOf& seconds_of) {
  constexpr int kFirst = 3;
  bool is_warm = false;
  for (int calls = kFirst;; is_warm = true) {
    const double seconds = seconds_of(calls);
    const int next = int(std::clamp(calls * sample_s / seconds, 1.0, double(most)));
    if (is_warm && next < 2 * calls) return next;
    calls = next;
  }
}

// Seconds of a call: the median of so many samples of about `sample_s` each.
template <class SecondsOf>
double median_of_samples(int samples, double sample_s, int most, const SecondsOf& seconds_of) {
  const int calls = calls_of_a_sample(sample_s, most, seconds_of);
  std::vector<double> seconds;
  for (int i = 0; i < samples; ++i) seconds.push_back(seconds_of(calls) / calls);
  const auto middle = seconds.begin() + samples / 2;
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

}  // namespace smp
