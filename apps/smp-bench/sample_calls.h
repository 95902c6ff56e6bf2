#pragma once

#include <algorithm>
#include <chrono>

namespace smp {

// Keeps the ranks busy together for 0.3 s after their start: until then the kernel has often not
// spread them over the CPUs, and where they are more than those, short calls take up to twice as
// long. most(s) is a call of all ranks that gives each the largest of theirs.
template <class Most>
void let_settle(const Most& most) {
  constexpr double kSettlingS = 0.3;
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  while (most(std::chrono::duration<double>(Clock::now() - start).count()) < kSettlingS) {
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

}  // namespace smp
