#include "prediction/possible_jobs.h"

#include <fmt/format.h>

#include <algorithm>

#include "smp/plan/base/errors.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/planner/choice/choice_words.h"

namespace smp::prediction {
namespace {

template <class T>
bool has(const std::vector<T>& values, T value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

}  // namespace

bool offers(const framework::FrameworkSupport& support, const choice::LayoutChoice& choice) {
  if (!has(support.shardings, choice.sharding)) return false;
  if (choice.pipeline > 1) {
    if (!has(support.schedules, choice.schedule)) return false;
    if (choice.sharding > Sharding::kOptimizerState && !support.sharded_pipelines) return false;
  }
  return (support.sequence_parallel || !choice.sequence_parallel) &&
         (support.context || choice.context == 1) && (support.experts || choice.expert == 1) &&
         (support.offload_activations || !choice.offload_activations) &&
         (support.offload_optimizer || !choice.offload_optimizer) &&
         (support.offload_parameters || !choice.offload_parameters);
}

std::vector<JobSpec> possible_jobs(const JobSpec& job, const choice::LayoutChoice& choice) {
  if (!framework::is_unknown(job.parallel.framework)) return {job};
  std::vector<JobSpec> jobs;
  for (FrameworkChoice& possible : framework::possible_frameworks()) {
    const framework::FrameworkSupport& support = possible.habits->offers;
    if (!offers(support, choice)) continue;
    if (!job.parallel.recompute_modules.empty() && !support.recompute_modules) continue;
    jobs.push_back(job);
    jobs.back().parallel.framework = std::move(possible);
  }
  if (jobs.empty()) {
    throw ConfigError(
        fmt::format("parallel.framework: unknown, but no shipped framework offers the layout {}: "
                    "name a framework, or the path of a framework file",
                    choice::describe(choice)));
  }
  return jobs;
}

}  // namespace smp::prediction
