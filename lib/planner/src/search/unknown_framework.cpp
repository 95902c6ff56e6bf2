#include "search/unknown_framework.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "choice/resolve.h"
#include "prediction/over_frameworks.h"
#include "prediction/possible_jobs.h"
#include "search/exact.h"
#include "search/explain.h"
#include "search/job_search.h"
#include "search/pricer.h"
#include "smp/plan/base/check.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/planner/choice/layout_rules.h"
#include "smp/planner/prediction/predict.h"

namespace smp::search {
namespace {

void require_pinned(const JobSpec& job) {
  const ParallelSpec& parallel = job.parallel;
  std::vector<std::string> open;
  const auto need = [&](bool pinned, const char* key) {
    if (!pinned) open.emplace_back(key);
  };
  const bool over_all = parallel.shard_optimizer_state == true;
  need(parallel.pipeline_parallel_degree.has_value(), "parallel.pipeline_parallel_degree");
  need(parallel.tensor_parallel_degree.has_value(), "parallel.tensor_parallel_degree");
  need(parallel.sharding.has_value() || over_all, "parallel.sharding");
  need(parallel.sharded_data_parallel_degree.has_value() || over_all ||
           parallel.sharding == Sharding::kNone,
       "parallel.sharded_data_parallel_degree");
  need(parallel.recompute.has_value(), "parallel.recompute");
  need(job.training.micro_batch.has_value(), "training.micro_batch");
  if (open.empty()) return;
  throw ConfigError(fmt::format(
      "parallel.framework: unknown prices one layout as each framework, but {} {} "
      "auto: set {}, or name a framework, whose layouts can be searched",
      fmt::join(open, ", "), open.size() == 1 ? "is" : "are", open.size() == 1 ? "it" : "them"));
}

// A plan as one framework runs it.
struct PossiblePlan {
  Plan plan;
  Candidate exact;
  PricedLayout priced;
};

PossiblePlan priced_as(const Plan& plan, const JobSpec& job, const choice::LayoutChoice& choice) {
  PossiblePlan possible;
  possible.plan = plan;
  possible.plan.job.parallel.framework = job.parallel.framework;
  possible.plan.predictions = prediction::predict(possible.plan);
  Pricer pricer(possible.plan.job);
  possible.priced = pricer.detail(choice);
  Candidate& exact = possible.exact;
  exact.choice = choice;
  for (const RankPrediction& rank : possible.plan.predictions.ranks) {
    exact.peak_bytes = std::max(exact.peak_bytes, static_cast<double>(rank.peak_bytes));
  }
  exact.step_s = static_cast<double>(possible.plan.predictions.step_ns) * 1e-9;
  const double closed_s = possible.priced.time.step_s;
  exact.seconds_per_token =
      closed_s > 0 ? possible.priced.seconds_per_token * exact.step_s / closed_s : 0;
  memory::MemoryEstimate memory = possible.priced.memory;
  memory.peak_bytes = exact.peak_bytes;
  exact.fit = prediction::fit_of(possible.plan.job, choice, memory);
  possible.priced = at_exact_prices(possible.priced, exact);
  return possible;
}

// The plan under each framework that offers its layout.
std::vector<PossiblePlan> possible_plans(const Plan& plan) {
  const choice::LayoutChoice choice = choice::choice_of(plan);
  std::vector<PossiblePlan> plans;
  for (const JobSpec& job : prediction::possible_jobs(plan.job, choice)) {
    if (!choice::layout_problem(job, choice)) plans.push_back(priced_as(plan, job, choice));
  }
  SMP_CHECK(!plans.empty());
  return plans;
}

// The first framework that finds a plan, or the first answer of those that find none.
SearchResult first_result(JobSpec one, const SearchOptions& options) {
  std::optional<SearchResult> infeasible;
  std::string refused;
  // A search for one framework would offload what fits in another.
  for (auto* offloaded : {&one.parallel.offload_activations, &one.parallel.offload_optimizer,
                          &one.parallel.offload_parameters}) {
    *offloaded = offloaded->value_or(false);
  }
  for (const FrameworkChoice& framework : framework::possible_frameworks()) {
    one.parallel.framework = framework;
    try {
      SearchResult result = JobSearch(one, options).run();
      if (const Plan* plan = std::get_if<Plan>(&result.best)) {
        if (prediction::offers(framework.habits->offers, choice::choice_of(*plan))) return result;
      } else if (!infeasible) {
        infeasible = std::move(result);
      }
    } catch (const ConfigError& error) {
      if (refused.empty()) refused = error.what();
    }
  }
  if (infeasible) return *infeasible;
  if (!refused.empty()) throw ConfigError(refused);
  throw ConfigError(
      "parallel.framework: unknown, but no shipped framework offers the pinned layout: name a "
      "framework, or the path of a framework file");
}

// Memory of one plan, time of another.
void combine(Plan& plan, const PossiblePlan& by_memory, const PossiblePlan& by_time) {
  plan.predictions = by_memory.plan.predictions;
  plan.predictions.step_ns = by_time.plan.predictions.step_ns;
  plan.predictions.bubble_ppm = by_time.plan.predictions.bubble_ppm;
  for (size_t i = 0; i < plan.predictions.ranks.size(); ++i) {
    plan.predictions.ranks[i].busy_ns = by_time.plan.predictions.ranks.at(i).busy_ns;
  }
  plan.job.parallel.framework.name = framework::kUnknownFramework;
  plan.job.parallel.framework.habits = by_memory.plan.job.parallel.framework.habits;
}

double memory_of(const PossiblePlan& plan) { return plan.exact.peak_bytes; }
double time_of(const PossiblePlan& plan) { return plan.exact.step_s; }
prediction::Fit fit_of(const PossiblePlan& plan) { return plan.exact.fit; }

}  // namespace

void predict_as_unknown(Plan& plan) {
  plan.job.parallel.framework.name = framework::kUnknownFramework;
  std::vector<PossiblePlan> plans = possible_plans(plan);
  const PossiblePlan by_memory = prediction::median_of(plans, memory_of);
  combine(plan, by_memory, prediction::median_of(plans, time_of));
}

SearchResult plan_of_unknown(const JobSpec& job, const SearchOptions& options) {
  require_pinned(job);
  SearchOptions one_layout;
  one_layout.strategy = options.strategy;
  SearchResult result = first_result(job, one_layout);
  Plan* plan = std::get_if<Plan>(&result.best);
  if (plan == nullptr) return result;
  plan->job.parallel.framework.name = framework::kUnknownFramework;
  std::vector<PossiblePlan> plans = possible_plans(*plan);
  std::vector<std::string> names;
  for (const PossiblePlan& one : plans) names.push_back(one.plan.job.parallel.framework.name);
  const PossiblePlan by_memory = prediction::median_of(plans, memory_of);
  const PossiblePlan by_time = prediction::median_of(plans, time_of);
  combine(*plan, by_memory, by_time);
  plan->reasons.push_back(fmt::format(
      "framework unknown: priced as {}; the median peak is that of {}, the median step that of {}",
      fmt::join(names, ", "), by_memory.plan.job.parallel.framework.name,
      by_time.plan.job.parallel.framework.name));
  result.best_priced = by_memory.priced;
  result.best_priced->time = by_time.priced.time;
  result.best_priced->seconds_per_token = by_time.priced.seconds_per_token;
  result.best_priced->cost_per_token = by_time.priced.cost_per_token;
  result.fit = result.best_priced->fit = prediction::fit_in_all(plans, fit_of);
  result.bottleneck = bottleneck_of(job.cluster, *result.best_priced);
  result.runner_up.reset();
  result.others.clear();
  result.difference.reset();
  return result;
}

}  // namespace smp::search
