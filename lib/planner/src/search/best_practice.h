#pragma once

#include <optional>
#include <string>
#include <vector>

#include "choice/batch.h"
#include "choice/resolve.h"
#include "search/pricer.h"

namespace smp::search {

// All layouts of one (tensor, pipeline): the best by the order of the practices, and what it beat.
struct FamilyResult {
  int64_t tensor = 1;
  int64_t pipeline = 1;
  int64_t data = 1;
  std::string problem;  // no batch is legal here, or no schedule
  std::optional<Candidate> best;
  std::vector<Candidate> closest;          // of each kind of sharding that did not fit
  std::optional<Candidate> smaller_shard;  // the last shard degree below best's; it did not fit
  std::optional<Candidate> rival;          // with offloading where best is without, or the reverse
  std::optional<Candidate> larger_batch;   // the closest layout of the last batch that did not fit
};

// All families of a job in the order of the steps: sharding alone, tensor parallelism, pipeline
// parallelism; within a step as the degrees rise.
std::vector<FamilyResult> search_families(const choice::JobWithDefaults& defaulted, Pricer& pricer);

// The first step with a layout that fits; in it the smallest degrees that are as fast as the
// fastest. Null when nothing fits.
const FamilyResult* choose_by_practice(const std::vector<FamilyResult>& families);

}  // namespace smp::search
