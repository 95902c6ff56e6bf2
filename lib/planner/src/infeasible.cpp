#include "infeasible.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "smp/plan/errors.h"
#include "smp/plan/job_names.h"
#include "smp/planner/legality.h"
#include "smp/planner/memory_model.h"
#include "smp/planner/units.h"

namespace smp {
namespace {

// The best layout of a changed job, if it has one. A change that breaks a pin is no change that
// helps.
std::optional<Choice> solve(const JobSpec& job) {
  try {
    require_legal_pins(job);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
  for (const FamilyResult& family : search_families(settle(job))) {
    if (family.best) return family.best->choice;
  }
  return std::nullopt;
}

void try_smaller_batch(const JobSpec& job, std::vector<std::string>& changes) {
  const TrainingSpec& training = job.training;
  if (!training.micro_batch || *training.micro_batch == 1) return;
  for (int64_t micro = *training.micro_batch / 2; micro >= 1; micro /= 2) {
    JobSpec changed = job;
    changed.training.micro_batch = micro;
    if (solve(changed)) {
      changes.push_back(
          fmt::format("training.micro_batch: {} instead of {}", micro, *training.micro_batch));
      return;
    }
  }
}

void try_unpinning(const JobSpec& job, std::vector<std::string>& changes) {
  const ParallelSpec& parallel = job.parallel;
  const auto attempt = [&](const std::string& pin, const std::function<void(ParallelSpec&)>& drop,
                           const std::function<std::string(const Choice&)>& answer) {
    JobSpec changed = job;
    drop(changed.parallel);
    if (const auto choice = solve(changed)) {
      changes.push_back(fmt::format("{}: {}", pin, answer(*choice)));
    }
  };
  if (parallel.tensor_parallel_degree) {
    attempt(
        "parallel.tensor_parallel_degree",
        [](ParallelSpec& p) { p.tensor_parallel_degree.reset(); },
        [&](const Choice& c) {
          return fmt::format("{} instead of {}", c.tensor, *parallel.tensor_parallel_degree);
        });
  }
  if (parallel.pipeline_parallel_degree) {
    attempt(
        "parallel.pipeline_parallel_degree",
        [](ParallelSpec& p) { p.pipeline_parallel_degree.reset(), p.partition.clear(); },
        [&](const Choice& c) {
          return fmt::format("{} instead of {}", c.pipeline, *parallel.pipeline_parallel_degree);
        });
  }
  if (parallel.sharding || parallel.sharded_data_parallel_degree) {
    attempt(
        "parallel.sharding",
        [](ParallelSpec& p) {
          p.sharding.reset(), p.sharded_data_parallel_degree.reset();
          p.shard_optimizer_state.reset();
        },
        [&](const Choice& c) {
          return fmt::format("{} over {} ranks", name_of(c.sharding), c.shard);
        });
  }
  if (parallel.activation_checkpointing == false && job.cluster.device != DeviceKind::kCpu) {
    attempt(
        "parallel.activation_checkpointing",
        [](ParallelSpec& p) { p.activation_checkpointing = true; },
        [](const Choice&) { return std::string("true instead of false"); });
  }
}

void try_more_hosts(const JobSpec& job, std::vector<std::string>& changes) {
  if (job.cluster.device == DeviceKind::kCpu) return;  // the engine runs on this host
  constexpr int64_t kMostHosts = 4096;
  for (int64_t hosts = 2 * job.cluster.hosts; hosts <= kMostHosts; hosts *= 2) {
    JobSpec changed = job;
    changed.cluster.hosts = hosts;
    if (solve(changed)) {
      changes.push_back(fmt::format("cluster.hosts: {} instead of {}", hosts, job.cluster.hosts));
      return;
    }
  }
}

const Evaluation* closest_of(const std::vector<FamilyResult>& families) {
  const Evaluation* closest = nullptr;
  for (const FamilyResult& family : families) {
    for (const Evaluation& evaluation : family.closest) {
      if (closest == nullptr || evaluation.fullest.peak_bytes < closest->fullest.peak_bytes) {
        closest = &evaluation;
      }
    }
  }
  return closest;
}

constexpr int64_t kMiB = 1 << 20;

// 0 = memory is not what lacks.
int64_t memory_needed_mib(const Evaluation& closest, const ClusterSpec& cluster) {
  if (closest.fullest.peak_bytes <= allowed_bytes(cluster)) return 0;
  return (closest.fullest.peak_bytes + cluster.reserved_bytes + kMiB - 1) / kMiB;
}

void try_larger_token_limit(const JobSpec& job, std::vector<std::string>& changes) {
  if (!changes.empty()) return;
  JobSpec changed = job;
  changed.training.max_tokens_per_batch = int64_t{1} << 60;
  if (!changed.training.micro_batch) changed.training.micro_batch = 1;
  if (const auto choice = solve(changed)) {
    const int64_t data = world_size(job.cluster) / (choice->tensor * choice->pipeline);
    const int64_t tokens = choice->batch.micro_batch * choice->batch.microbatches * data *
                           job.training.sequence_length;
    changes.push_back(fmt::format("training.max_tokens_per_batch: {} instead of {}", tokens,
                                  job.training.max_tokens_per_batch));
  }
}

std::string layout_words(const Choice& choice) {
  return fmt::format("tensor {}, pipeline {}, sharding {} over {}, micro batch {} x {}{}",
                     choice.tensor, choice.pipeline, name_of(choice.sharding), choice.shard,
                     choice.batch.micro_batch, choice.batch.microbatches,
                     choice.offload ? ", activations offloaded" : "");
}

}  // namespace

Infeasible explain_infeasible(const JobSpec& job, const SettledJob& settled,
                              const std::vector<FamilyResult>& families) {
  Infeasible infeasible;
  const Evaluation* closest = closest_of(families);
  const ClusterSpec& cluster = settled.job.cluster;
  if (families.empty()) {
    infeasible.problem = "no tensor and pipeline degree is legal with the keys that are pinned";
  } else if (closest == nullptr) {
    infeasible.problem = fmt::format("no batch is legal: {}", families.front().batch_problem);
  } else {
    infeasible.problem = fmt::format("the closest layout ({}) needs {}",
                                     layout_words(closest->choice), closest->problem);
  }
  try_smaller_batch(job, infeasible.changes);
  try_unpinning(job, infeasible.changes);
  const int64_t needed = closest == nullptr ? 0 : memory_needed_mib(*closest, cluster);
  const bool little_memory = needed * kMiB <= cluster.memory_per_process_bytes * 5 / 4;
  const auto propose_memory = [&] {
    if (needed == 0) return;
    infeasible.changes.push_back(fmt::format("cluster.memory_per_process: {}MiB instead of {}",
                                             needed,
                                             human_bytes(cluster.memory_per_process_bytes)));
  };
  if (little_memory) propose_memory();
  try_more_hosts(job, infeasible.changes);
  if (!little_memory) propose_memory();
  try_larger_token_limit(job, infeasible.changes);
  return infeasible;
}

}  // namespace smp
