#pragma once

#include <optional>

#include "choice/resolve.h"
#include "search/pricer.h"

namespace smp::search {

// A layout priced again by walking and simulating its very schedule.
struct ExactLayout {
  Candidate candidate;           // with the exact step time and peak
  Plan plan;                     // with its predictions; reasons left empty
  std::string partition_reason;  // why its stages are not even; empty = they are
};

// Nothing when the exact prices say that it does not fit after all; the pricer then refuses it.
std::optional<ExactLayout> price_exactly(const choice::JobWithDefaults& defaulted, Pricer& pricer,
                                         const choice::LayoutChoice& choice);

// What the closed form says of a layout, its terms and parts in proportion to its exact prices.
PricedLayout at_exact_prices(PricedLayout layout, const Candidate& exact);

}  // namespace smp::search
