#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "smp/plan/spec/plan.h"
#include "smp/planner/choice/layout_choice.h"
#include "smp/planner/choice/strategy.h"
#include "smp/planner/memory/memory_estimate.h"
#include "smp/planner/prediction/fit.h"
#include "smp/planner/time/time_estimate.h"

// What is asked of a search, and what it answers. Plain data; safe from any thread.
namespace smp::search {

struct SearchOptions {
  choice::Strategy strategy = choice::Strategy::kFastest;
  int64_t top = 1;      // layouts to return, the best included
  bool pareto = false;  // price whatever may be on the front of time and memory
  bool explain =
      false;  // search again with more memory and faster links, and by the other strategy
};

// A layout that the search priced.
struct PricedLayout {
  choice::LayoutChoice choice;
  memory::MemoryEstimate memory;  // of the fullest stage
  time::TimeEstimate time;
  prediction::Fit fit = prediction::Fit::kNo;
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

// The largest memory term and the largest part of the step time of the chosen layout.
struct Bottleneck {
  memory::Term memory_term = memory::Term::kWeights;
  double memory_term_bytes = 0;
  double peak_bytes = 0;
  double allowed_bytes = 0;  // 0 = no limit is given
  time::TimePart time_part = time::TimePart::kMatmul;
  double time_part_s = 0;
  double step_s = 0;
};

// Sensitivity of the step time to a resource: the best layout's step with a little more of it.
struct Sensitivity {
  std::string resource;  // "1 GiB of memory a process", "1 GB/s between hosts"
  double step_s_before = 0;
  double step_s_after = 0;
  std::string layout;  // with it, where another layout is then the best; empty = the same
};

// How the other strategy's plan differs from the chosen one.
struct StrategyDifference {
  choice::Strategy other = choice::Strategy::kBestPractice;
  std::string layout;            // of the other strategy; empty = nothing fits there
  double step_s = 0;             // its step time
  double seconds_per_token = 0;  // and time per token
  double winner_seconds_per_token = 0;
  std::vector<std::string> differences;  // "tensor 2 instead of 1", ...
};

// The best layout beside the chosen one.
struct RunnerUp {
  std::string layout;
  double seconds_per_token = 0;  // 0 = the cluster names no rates
  double peak_bytes = 0;
};

struct SearchStatistics {
  int64_t evaluations = 0;   // complete layouts whose memory and step time were both priced
  int64_t bounds = 0;        // sets of layouts for which a lower bound was priced instead
  int64_t simulated = 0;     // schedules that were simulated, their memory not walked
  int64_t exact = 0;         // plans that were walked and simulated
  double seconds = 0;        // of the search in closed form
  double total_seconds = 0;  // exact prices and reasons included
};

struct SearchResult {
  choice::Strategy strategy = choice::Strategy::kFastest;
  std::variant<Plan, Infeasible> best;
  std::optional<PricedLayout> best_priced;  // terms and parts in closed form, sums exact
  prediction::Fit fit =
      prediction::Fit::kNo;           // of the best; kTight when nothing fits with a margin
  std::optional<RunnerUp> runner_up;  // nothing when no other was priced that fits
  std::vector<Plan> others;           // that fit as well, one for each family, fastest first
  std::vector<FamilyVerdict> families;
  std::vector<PricedLayout> pareto;  // ascending time per token, descending peak
  std::optional<Bottleneck> bottleneck;
  std::vector<Sensitivity> sensitivities;        // with options.explain
  std::optional<StrategyDifference> difference;  // where the other strategy's plan differs
  SearchStatistics statistics;
};

}  // namespace smp::search
