#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// Items of parallel.forbid: a key of the layout compared with values, as in
// "tensor_parallel_degree=8", "micro_batch>=4" or "pipeline=simple|zb_v". A layout for which one of
// them holds is not chosen. Pure; safe from any thread.
namespace smp {

enum class Relation { kEqual, kUnequal, kBelow, kAtMost, kAbove, kAtLeast };

struct ForbidRule {
  std::string key;  // without its section, e.g. "tensor_parallel_degree"
  Relation relation = Relation::kEqual;
  // Several for kEqual and kUnequal ("one of"). Choices count from 0 in the order of their
  // enumerators; true is 1.
  std::vector<int64_t> values;

  bool holds(int64_t value) const;
};

// A rule, or what is wrong with the text: words that follow "item 2".
struct ForbidReading {
  ForbidRule rule;
  std::string problem;
};
ForbidReading read_forbid(std::string_view text);

}  // namespace smp
