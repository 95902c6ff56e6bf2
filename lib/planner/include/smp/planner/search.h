#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "smp/plan/plan.h"

// The search: from a job with open keys to the plan that the SMP best practices lead to. Their
// order:
//   1. the smallest sharding that fits, against offloading instead of the next larger shard degree
//   2. a smaller batch
//   3. tensor parallelism
//   4. pipeline parallelism
// A later step is taken only when no earlier one fits; within a step the least predicted time per
// token wins, and of times within 5 % the smallest degrees. Deterministic: the same job gives the
// same plan, byte for byte. Pure; any thread.
namespace smp {

// A layout family: the degrees that its members share, and what became of it.
struct FamilyVerdict {
  int64_t tensor = 1;
  int64_t pipeline = 1;
  std::string sharding;  // "none", "parameters over 8 to 256 ranks", ...
  enum class Outcome { kChosen, kFits, kRejected } outcome = Outcome::kRejected;
  std::string reason;  // with its numbers
};

std::string_view name_of(FamilyVerdict::Outcome outcome);  // "chosen", "fits", "rejected"

// No layout fits. An expected answer: programs end with ExitCode::kNoFeasiblePlan.
struct Infeasible {
  std::string problem;
  std::vector<std::string> changes;  // that would each make it fit, smallest first
};

struct SearchResult {
  std::variant<Plan, Infeasible> best;
  std::vector<Plan> others;  // that fit as well, one for each (tensor, pipeline), fastest first
  std::vector<FamilyVerdict> families;
  int64_t evaluated = 0;  // layouts priced
};

// Throws ConfigError when a pinned key cannot be honoured by any layout of this cluster.
// `top`: how many of the layouts that fit to return, the best included.
SearchResult plan_job(const JobSpec& job, int64_t top = 1);

}  // namespace smp
