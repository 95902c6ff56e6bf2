#pragma once

#include "choice/resolve.h"
#include "search/pricer.h"

// What holds the winner back, and what would help. Pure.
namespace smp::search {

Bottleneck bottleneck_of(const ClusterSpec& cluster, const PricedLayout& layout);

// Searches again with 1 GiB more of memory, and prices the winner with each link 1 GB/s faster.
std::vector<Sensitivity> sensitivities_of(const JobSpec& job, Pricer& pricer,
                                          const PricedLayout& chosen);

// The plan of the other strategy beside the chosen one; nothing when they are the same.
std::optional<StrategyDifference> difference_of(const JobSpec& job, choice::Strategy other,
                                                const PricedLayout& chosen);

// The front of time and memory at the times of the layouts' very schedules; `points` are those of
// the closed form.
std::vector<PricedLayout> simulated_front(const choice::JobWithDefaults& defaulted, Pricer& pricer,
                                          const std::vector<Candidate>& points);

// The best layout by a strategy at its exact prices; nothing when none fits.
std::optional<Candidate> best_layout(const JobSpec& job, choice::Strategy strategy,
                                     SearchStatistics* statistics = nullptr);

}  // namespace smp::search
