#include "smp/planner/choice/legality.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "smp/plan/base/errors.h"
#include "smp/plan/model/operators.h"
#include "smp/plan/model/parameter_counts.h"
#include "smp/plan/rules/degree_rules.h"
#include "smp/planner/choice/layout_rules.h"

namespace smp::choice {
namespace {

// "legal values: 1, 2, 4, 8; nearest: 2, 4"
std::string nearest_legal(const std::vector<int64_t>& legal, int64_t wanted) {
  if (legal.empty()) return "no value is legal";
  std::string nearest;
  const auto above = std::upper_bound(legal.begin(), legal.end(), wanted);
  if (above != legal.begin()) nearest = std::to_string(*(above - 1));
  if (above != legal.end()) nearest += (nearest.empty() ? "" : ", ") + std::to_string(*above);
  constexpr size_t kShown = 12;
  const size_t shown = std::min(legal.size(), kShown);
  return fmt::format("legal values: {}{}; nearest: {}",
                     fmt::join(legal.begin(), legal.begin() + static_cast<int64_t>(shown), ", "),
                     legal.size() > shown ? ", ..." : "", nearest);
}

std::vector<int64_t> tensor_degrees_in_play(const JobSpec& job) {
  const auto& pinned = job.parallel.tensor_parallel_degree;
  return pinned ? std::vector<int64_t>{*pinned} : legal_tensor_degrees(job);
}

void require_legal_tensor(const JobSpec& job) {
  const auto& pinned = job.parallel.tensor_parallel_degree;
  if (!pinned) return;
  if (const auto problem = rules::tensor_problem(job, *pinned)) {
    throw ConfigError(fmt::format("parallel.tensor_parallel_degree: {}: {}; {}", *pinned, *problem,
                                  nearest_legal(legal_tensor_degrees(job), *pinned)));
  }
}

void require_legal_pipeline(const JobSpec& job) {
  const auto& pinned = job.parallel.pipeline_parallel_degree;
  if (!pinned) return;
  std::set<int64_t> legal;
  std::string problem;
  for (const int64_t t : tensor_degrees_in_play(job)) {
    if (const auto found = rules::pipeline_problem(job, t, *pinned)) {
      if (problem.empty()) problem = *found;
    } else {
      return;
    }
    for (const int64_t p : legal_pipeline_degrees(job, t)) legal.insert(p);
  }
  throw ConfigError(fmt::format("parallel.pipeline_parallel_degree: {}: {}; {}", *pinned, problem,
                                nearest_legal({legal.begin(), legal.end()}, *pinned)));
}

// Data-parallel degrees of the layouts that the pins leave open.
std::set<int64_t> data_degrees_in_play(const JobSpec& job) {
  const int64_t context = job.parallel.context_parallel_degree.value_or(1);  // more leaves less
  std::set<int64_t> found;
  for (const int64_t t : tensor_degrees_in_play(job)) {
    for (const int64_t p : legal_pipeline_degrees(job, t)) {
      const auto& pinned = job.parallel.pipeline_parallel_degree;
      if (pinned && *pinned != p) continue;
      const int64_t peers = rules::world_size(job.cluster) / (t * p);
      if (peers % context == 0) found.insert(peers / context);
    }
  }
  return found;
}

void require_legal_context(const JobSpec& job) {
  const auto& pinned = job.parallel.context_parallel_degree;
  if (!pinned) return;
  const auto problem = rules::context_problem(job, *pinned);
  if (!problem) return;
  std::vector<int64_t> legal;
  for (const int64_t c : divisors(rules::world_size(job.cluster))) {
    if (!rules::context_problem(job, c)) legal.push_back(c);
  }
  throw ConfigError(fmt::format("parallel.context_parallel_degree: {}: {}; {}", *pinned, *problem,
                                nearest_legal(legal, *pinned)));
}

void require_legal_expert(const JobSpec& job) {
  const auto& pinned = job.parallel.expert_parallel_degree;
  if (!pinned) return;
  const int64_t world = rules::world_size(job.cluster);
  const auto problem = rules::expert_problem(job, *pinned, 1, world);
  if (!problem) return;
  std::vector<int64_t> legal;
  for (const int64_t e : divisors(std::max<int64_t>(1, job.model.num_experts))) {
    if (!rules::expert_problem(job, e, 1, world)) legal.push_back(e);
  }
  throw ConfigError(fmt::format("parallel.expert_parallel_degree: {}: {}; {}", *pinned, *problem,
                                nearest_legal(legal, *pinned)));
}

void require_legal_shard(const JobSpec& job) {
  const ParallelSpec& parallel = job.parallel;
  if (!parallel.sharded_data_parallel_degree) return;
  const int64_t z = *parallel.sharded_data_parallel_degree;
  const std::set<int64_t> data = data_degrees_in_play(job);
  if (parallel.shard_optimizer_state == true) {
    const auto over_all = rules::shards_over_all_problem({data.begin(), data.end()}, z);
    if (over_all) {
      throw ConfigError(fmt::format("parallel.sharded_data_parallel_degree: {}: {}", z, *over_all));
    }
  }
  std::set<int64_t> legal;
  for (const int64_t d : data) {
    if (!rules::shard_problem(d, z)) return;
    for (const int64_t divisor : divisors(d)) legal.insert(divisor);
  }
  const std::string problem = data.empty() ? "no data-parallel degree is legal with these keys"
                                           : *rules::shard_problem(*data.rbegin(), z);
  throw ConfigError(fmt::format("parallel.sharded_data_parallel_degree: {}: {}; {}", z, problem,
                                nearest_legal({legal.begin(), legal.end()}, z)));
}

}  // namespace

std::vector<int64_t> divisors(int64_t number) {
  std::vector<int64_t> low, high;
  for (int64_t i = 1; i * i <= number; ++i) {
    if (number % i != 0) continue;
    low.push_back(i);
    if (i != number / i) high.push_back(number / i);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

std::vector<int64_t> legal_tensor_degrees(const JobSpec& job) {
  std::vector<int64_t> legal;
  for (const int64_t t : divisors(job.cluster.processes_per_host)) {
    if (!rules::tensor_problem(job, t)) legal.push_back(t);
  }
  return legal;
}

std::vector<int64_t> legal_pipeline_degrees(const JobSpec& job, int64_t tensor) {
  std::vector<int64_t> legal;
  if (rules::tensor_problem(job, tensor)) return legal;
  for (const int64_t p : divisors(rules::world_size(job.cluster))) {
    if (p > model::block_count(job.model)) break;
    if (!rules::pipeline_problem(job, tensor, p)) legal.push_back(p);
  }
  return legal;
}

void require_legal_pins(const JobSpec& job) {
  require_legal_tensor(job);
  require_legal_pipeline(job);
  require_legal_context(job);
  require_legal_expert(job);
  require_legal_shard(job);
}

}  // namespace smp::choice
