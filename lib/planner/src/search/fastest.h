#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "search/pricer.h"
#include "search/search_space.h"
#include "search/simplicity.h"

namespace smp::search {

// Whether the layout has these degrees.
bool is_of(const SearchSpace::Split& split, const choice::LayoutChoice& choice);

// All layouts with the same degrees that split the model, and what became of them.
struct SplitResult {
  SearchSpace::Split split;
  SimplicityFront fits;
  std::optional<Candidate> closest;  // the least memory of those that do not fit
  // No layout of it that was not priced takes less time per token; infinite = all were priced.
  double least_seconds_per_token = std::numeric_limits<double>::infinity();
  std::string problem;  // no batch is legal here, or no schedule
};

struct FastestResult {
  std::vector<SplitResult> splits;    // as the degrees rise
  std::vector<Candidate> candidates;  // every layout that fits within the reach, fastest first
  std::vector<Candidate> pareto;      // ascending time per token, descending peak; if asked for
};

// Branch and bound over everything that is open. A node is a split with a batch, a schedule and a
// placement; its bound is the time of computing, of messages inside layers and of the bubble, which
// no choice of sharding, recomputing and offloading goes below. Nodes are taken by ascending bound
// and left when theirs is beyond the best by more than kListed and above `reach` (seconds a token),
// or when not even the leanest layout of a node fits. Nodes that are rarely the best come last.
FastestResult search_fastest(Pricer& pricer, const SearchSpace& space, bool pareto,
                             double reach = 0);

// Layouts slower than the best by more than this are bounded, not priced.
inline constexpr double kListed = 1.05;
// The closed form is above its simulation by no more: of a pipeline, or of our engine's messages.
inline constexpr double kOverestimate = 1.4;
// Nodes that are rarely the best are visited last, and where they may gain this much.
inline constexpr double kRareGain = 0.99;
// The front of time and memory ends at this many times the best time.
inline constexpr double kParetoReach = 2.0;

}  // namespace smp::search
