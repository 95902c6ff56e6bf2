#include "smp/planner/search/search.h"

#include <chrono>

#include "search/job_search.h"
#include "search/unknown_framework.h"
#include "smp/plan/base/check.h"
#include "smp/plan/framework/framework_catalog.h"

namespace smp::search {

std::string_view name_of(FamilyVerdict::Outcome outcome) {
  switch (outcome) {
    case FamilyVerdict::Outcome::kChosen: return "chosen";
    case FamilyVerdict::Outcome::kFits: return "fits";
    case FamilyVerdict::Outcome::kRejected: return "rejected";
  }
  check_failed(__FILE__, __LINE__, "unknown outcome");
}

SearchResult plan_job(const JobSpec& job, const SearchOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  SearchResult result = framework::is_unknown(job.parallel.framework)
                            ? plan_of_unknown(job, options)
                            : JobSearch(job, options).run();
  result.statistics.total_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace smp::search
