#pragma once

#include <string>
#include <vector>

#include "smp/planner/search/search_result.h"

// Plans several jobs one after the other and compares them: the values of a key (--what-if), or
// clusters. Pure; any thread.
namespace smp::search {

struct NamedJob {
  std::string name;  // "8", "p4d.24xlarge"
  JobSpec job;
};

// The result of one job.
struct PlannedCase {
  std::string name;
  std::string problem;  // nothing fits, or a pin is illegal; the rest is then empty
  std::string layout;
  prediction::Fit fit = prediction::Fit::kNo;
  double step_s = 0;
  double tokens_per_s = 0;
  double peak_bytes = 0;
  double cost_per_million_tokens = 0;  // 0 = the cluster names no price
};

PlannedCase planned_case(const NamedJob& job, const SearchOptions& options);

// In the order given (--what-if), or fastest first and what does not fit last (clusters).
std::vector<PlannedCase> planned_cases(const std::vector<NamedJob>& jobs,
                                       const SearchOptions& options);
std::vector<PlannedCase> ranked_by_time(std::vector<PlannedCase> cases);

// A table for people; `head` names its first column. Costs only where some case has one.
std::string cases_text(const std::string& head, const std::vector<PlannedCase>& cases);
// "by cost a token: p4d (0.12 a Mtoken), p5 (0.15 a Mtoken)"; "" where fewer than two have a price.
std::string cost_order_text(const std::vector<PlannedCase>& cases);
// A JSON array of objects.
std::string cases_json(const std::vector<PlannedCase>& cases);

}  // namespace smp::search
