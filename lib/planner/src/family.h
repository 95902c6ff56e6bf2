#pragma once

#include <optional>
#include <string>
#include <vector>

#include "evaluation.h"

namespace smp {

// All layouts of one (tensor, pipeline): the best by the order of the practices, and what it beat.
struct FamilyResult {
  int64_t tensor = 1;
  int64_t pipeline = 1;
  int64_t data = 1;
  std::string batch_problem;  // no batch is legal here
  std::optional<Evaluation> best;
  std::vector<Evaluation> closest;  // of each kind of sharding that did not fit, fullest last
  std::optional<Evaluation> smaller_shard;  // the last shard degree below best's; it did not fit
  std::optional<Evaluation> rival;          // with offloading where best is without, or the reverse
  std::optional<Evaluation> larger_batch;   // the closest layout of the last batch that did not fit
  int64_t evaluated = 0;
};

FamilyResult search_family(const SettledJob& settled, int64_t tensor, int64_t pipeline);

}  // namespace smp
