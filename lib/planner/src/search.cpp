#include "smp/planner/search.h"

#include <chrono>

#include "job_search.h"
#include "smp/plan/check.h"

namespace smp {

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
  SearchResult result = JobSearch(job, options).run();
  result.effort.total_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace smp
