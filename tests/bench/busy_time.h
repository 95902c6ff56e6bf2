#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

// How long something was busy, of pieces of work that may run at once.
namespace smp::bench {

struct Span {
  int64_t start_ns, end_ns;
};

// The times at which any of them runs, in order; none of these touches the next.
inline std::vector<Span> union_of(std::vector<Span> spans) {
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return a.start_ns < b.start_ns; });
  std::vector<Span> result;
  for (const Span& span : spans)
    if (result.empty() || result.back().end_ns < span.start_ns)
      result.push_back(span);
    else
      result.back().end_ns = std::max(result.back().end_ns, span.end_ns);
  return result;
}

// Of what union_of() returns.
inline int64_t length_ns(const std::vector<Span>& spans) {
  int64_t sum = 0;
  for (const Span& span : spans) sum += span.end_ns - span.start_ns;
  return sum;
}

// The times at which both run, of what union_of() returns for each.
inline std::vector<Span> intersection_of(const std::vector<Span>& a, const std::vector<Span>& b) {
  std::vector<Span> result;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const Span both{std::max(a[i].start_ns, b[j].start_ns), std::min(a[i].end_ns, b[j].end_ns)};
    if (both.start_ns < both.end_ns) result.push_back(both);
    ++(a[i].end_ns < b[j].end_ns ? i : j);
  }
  return result;
}

}  // namespace smp::bench
