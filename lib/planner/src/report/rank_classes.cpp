#include "report/rank_classes.h"

#include <fmt/format.h>

#include <algorithm>

namespace smp::report {
namespace {

bool same_bytes(const RankPrediction& a, const RankPrediction& b) {
  return a.peak_bytes == b.peak_bytes && a.peak_phase == b.peak_phase &&
         std::equal(a.terms.begin(), a.terms.end(), b.terms.begin(), b.terms.end(),
                    [](const MemoryTerm& x, const MemoryTerm& y) {
                      return x.name == y.name && x.bytes == y.bytes;
                    });
}

std::string span(const char* name, int64_t from, int64_t to) {
  return from == to ? fmt::format("{} {}", name, from) : fmt::format("{} {}-{}", name, from, to);
}

}  // namespace

std::vector<ClassGroup> grouped(const std::vector<RankPrediction>& ranks) {
  std::vector<ClassGroup> groups;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && same_bytes(ranks[i], ranks[end])) ++end;
    const RankPrediction& first = ranks[i];
    const RankPrediction& last = ranks[end - 1];
    std::string name = span("stage", first.stage, last.stage);
    if (last.stage == first.stage) name += ", " + span("tensor", first.tensor, last.tensor);
    groups.push_back({std::move(name), &first});
    i = end;
  }
  return groups;
}

}  // namespace smp::report
