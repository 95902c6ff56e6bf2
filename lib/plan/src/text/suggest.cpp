#include "smp/plan/text/suggest.h"

#include <algorithm>

#include "smp/plan/text/lower_case.h"

namespace smp::text {

namespace {

constexpr size_t kLongestWord = 64;  // longer ones are no typing mistakes

std::string folded(std::string_view word) {
  std::string out = lower_case(word);
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the usual table: a swap of neighbours looks two rows back.
  std::vector<int> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    before.swap(last);
    last.swap(row);
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replace = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replace, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

std::optional<std::string> nearest(std::string_view word,
                                   const std::vector<std::string>& candidates) {
  if (word.empty() || word.size() > kLongestWord) return std::nullopt;
  int best = std::max(1, static_cast<int>(word.size()) / 3) + 1;
  std::optional<std::string> found;
  for (const std::string& candidate : candidates) {
    const int distance = edit_distance(folded(word), folded(candidate));
    if (distance < best) {
      best = distance;
      found = candidate;
    }
  }
  return found;
}

}  // namespace smp::text
