#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "smp/plan/plan.h"
#include "smp/planner/fit.h"
#include "smp/planner/layout_choice.h"
#include "smp/planner/memory_estimate.h"
#include "smp/planner/strategy.h"
#include "smp/planner/time_estimate.h"

// The search: from a job with open keys to the plan. Two strategies:
//   fastest        the least predicted time per token of all layouts that fit; of times within 3 %
//                  the simplest layout
//   best-practice  the order of the SMP best practices: the smallest sharding that fits, against
//                  offloading instead of the next larger shard degree; a smaller batch; tensor
//                  parallelism; pipeline parallelism. A later step is taken only when no earlier
//                  one fits.
// Layouts are priced in closed form; the best of them again by walking and simulating their very
// schedules, and what does not fit then gives way to the next. Deterministic: the same job gives
// the same plan, byte for byte. Pure; any thread.
namespace smp {

struct SearchOptions {
  Strategy strategy = Strategy::kFastest;
  int64_t top = 1;      // layouts to return, the best included
  bool pareto = false;  // price whatever may be on the front of time and memory
  bool explain =
      false;  // search again with more memory and faster links, and by the other strategy
};

// A layout that the search priced.
struct PricedLayout {
  LayoutChoice choice;
  MemoryEstimate memory;  // of the fullest stage
  TimeEstimate time;
  Fit fit = Fit::kNo;
  double seconds_per_token = 0;
  double cost_per_token = 0;  // 0 = the cluster names no price
};

// A layout family: the degrees that its members share, and what became of it.
struct FamilyVerdict {
  int64_t tensor = 1;
  int64_t pipeline = 1;
  int64_t context = 1;
  int64_t expert = 1;
  std::string sharding;  // "none", "parameters over 8 to 256 ranks", ...
  enum class Outcome { kChosen, kFits, kRejected } outcome = Outcome::kRejected;
  std::string reason;  // with its numbers
  double step_s = 0;   // of its best layout that fits; 0 = none fits or not priced
  double seconds_per_token = 0;
  double peak_bytes = 0;  // of that layout, or of the closest one that does not fit; 0 = not priced
};

std::string_view name_of(FamilyVerdict::Outcome outcome);  // "chosen", "fits", "rejected"

// No layout fits. An expected answer: programs end with ExitCode::kNoFeasiblePlan.
struct Infeasible {
  std::string problem;
  std::vector<std::string> changes;  // that would each make it fit, smallest first
};

// What the winner is held back by: its largest memory term and its largest part of time.
struct Bottleneck {
  Term memory_term = Term::kWeights;
  double memory_term_bytes = 0;
  double peak_bytes = 0;
  double allowed_bytes = 0;  // 0 = no limit is given
  TimePart time_part = TimePart::kMatmul;
  double time_part_s = 0;
  double step_s = 0;
};

// What a little more of something would buy: the step time of the best layout with it.
struct Purchase {
  std::string what;  // "1 GiB of memory a process", "1 GB/s between hosts"
  double step_s_before = 0;
  double step_s_after = 0;
  std::string layout;  // with it, where another layout is then the best; empty = the same
};

// Where the two strategies differ.
struct StrategyDifference {
  Strategy other = Strategy::kBestPractice;
  std::string layout;            // of the other strategy; empty = nothing fits there
  double step_s = 0;             // its step time
  double seconds_per_token = 0;  // and time per token
  double winner_seconds_per_token = 0;
  std::vector<std::string> differences;  // "tensor 2 instead of 1", ...
};

// The best layout that was not taken.
struct RunnerUp {
  std::string layout;
  double seconds_per_token = 0;  // 0 = the cluster names no rates
  double peak_bytes = 0;
};

struct SearchEffort {
  int64_t evaluations = 0;   // complete layouts whose memory and step time were both priced
  int64_t bounds = 0;        // sets of layouts of which a bound was priced instead
  int64_t simulated = 0;     // schedules that were simulated, their memory not walked
  int64_t exact = 0;         // plans that were walked and simulated
  double seconds = 0;        // of the search in closed form
  double total_seconds = 0;  // exact prices and reasons included
};

struct SearchResult {
  Strategy strategy = Strategy::kFastest;
  std::variant<Plan, Infeasible> best;
  std::optional<PricedLayout> best_priced;  // terms and parts in closed form, sums exact
  Fit fit = Fit::kNo;                       // of the best; kTight when nothing fits with a margin
  std::optional<RunnerUp> runner_up;        // nothing when no other was priced that fits
  std::vector<Plan> others;                 // that fit as well, one for each family, fastest first
  std::vector<FamilyVerdict> families;
  std::vector<PricedLayout> pareto;  // ascending time per token, descending peak
  std::optional<Bottleneck> binding;
  std::vector<Purchase> purchases;               // with options.explain
  std::optional<StrategyDifference> difference;  // where the other strategy's plan differs
  SearchEffort effort;
};

// Throws ConfigError when a pinned key cannot be honoured by any layout of this cluster.
SearchResult plan_job(const JobSpec& job, const SearchOptions& options = {});

}  // namespace smp
