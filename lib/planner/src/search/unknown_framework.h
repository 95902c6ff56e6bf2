#pragma once

#include "smp/planner/search/search_result.h"

// Plans of a framework that nobody names: one layout, priced as each shipped framework that offers
// it. Pure; any thread.
namespace smp::search {

// The layout that the job pins. Its memory is that of the framework with the median peak, its time
// that of the framework with the median step; it fits if it fits in each framework, and is tight
// if it does in some. Throws ConfigError for open degrees, sharding or micro batch.
SearchResult plan_of_unknown(const JobSpec& job, const SearchOptions& options);

// The predictions of such a plan, and the habits behind its memory in the plan's job.
void predict_as_unknown(Plan& plan);

}  // namespace smp::search
