#pragma once

#include <algorithm>

namespace smp {

// How many calls take about `sample_s` seconds, from 1 to `most`, where seconds_of(n) makes n calls
// and says how long they took. All ranks choose alike if it says the same to each.
//
// The first calls take longer: memory is new to the caches, and the kernel has not yet spread the
// ranks over the CPUs. So batches grow until one takes about as long as a sample, which warms up
// too; the first never counts.
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
