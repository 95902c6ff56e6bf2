#include "infeasible.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <optional>
#include <set>
#include <string_view>

#include "smp/plan/errors.h"
#include "smp/plan/job_names.h"
#include "smp/planner/legality.h"
#include "smp/planner/memory_model.h"
#include "smp/planner/units.h"

namespace smp {
namespace {

// The plan of a changed job, if a layout fits it. A change that breaks a pin is no change that
// helps.
std::optional<Plan> solve(const JobSpec& job) {
  try {
    require_legal_pins(job);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
  const SettledJob settled = settle(job);
  for (const FamilyResult& family : search_families(settled)) {
    if (family.best) return resolve(settled, family.best->choice);
  }
  return std::nullopt;
}

// Changes that were tried and helped, in the order of the trials.
class Trials {
 public:
  explicit Trials(const JobSpec& job) : job_(job) {}

  // Tries the job with `change`; `words` says the key's value in the plan that then fits.
  bool attempt(const std::string& key, const std::function<void(JobSpec&)>& change,
               const std::function<std::string(const Plan&)>& words) {
    JobSpec changed = job_;
    change(changed);
    const std::optional<Plan> plan = solve(changed);
    if (plan) helped_.push_back(fmt::format("{}: {}", key, words(*plan)));
    return plan.has_value();
  }

  // Lets the planner choose a key that is pinned.
  template <class Member>
  bool unpin(const std::string& key, Member member) {
    JobSpec pinned = job_;
    const auto value = member(pinned);
    if (!value) return false;
    return attempt(
        key, [&](JobSpec& job) { member(job).reset(); },
        [&](const Plan& plan) {
          JobSpec solved = plan.job;
          return fmt::format("{} instead of {}", shown(*member(solved)), shown(*value));
        });
  }

  const JobSpec& job() const { return job_; }
  std::vector<std::string>& helped() { return helped_; }

 private:
  static int64_t shown(int64_t value) { return value; }
  static bool shown(bool value) { return value; }
  template <class E>
  static std::string_view shown(E value) {
    return name_of(value);
  }

  const JobSpec& job_;
  std::vector<std::string> helped_;
};

#define SMP_KEY(member) \
  [](JobSpec & spec) -> auto& { return spec.member; }

void try_shardings(Trials& trials) {
  const ParallelSpec& parallel = trials.job().parallel;
  if (parallel.sharded_data_parallel_degree && parallel.shard_optimizer_state != true &&
      trials.unpin("parallel.sharded_data_parallel_degree",
                   SMP_KEY(parallel.sharded_data_parallel_degree))) {
    return;
  }
  if (!parallel.sharding && !parallel.shard_optimizer_state) return;
  trials.attempt(
      "parallel.sharding",  // and the two keys that say the same
      [](JobSpec& job) {
        job.parallel.sharding.reset();
        job.parallel.sharded_data_parallel_degree.reset();
        job.parallel.shard_optimizer_state.reset();
      },
      [](const Plan& plan) {
        return fmt::format("{} over {} ranks", name_of(*plan.job.parallel.sharding),
                           plan.degrees.shard);
      });
}

void try_checkpointing(Trials& trials) {
  const JobSpec& job = trials.job();
  if (job.cluster.device == DeviceKind::kCpu) return;  // the engine runs without it
  if (job.parallel.activation_checkpointing == false) {
    trials.unpin("parallel.activation_checkpointing", SMP_KEY(parallel.activation_checkpointing)) ||
        trials.attempt(
            "parallel.activation_checkpointing",
            [](JobSpec& changed) { changed.parallel.activation_checkpointing = true; },
            [](const Plan&) { return "true instead of false"; });
  }
  trials.unpin("parallel.offload_activations", SMP_KEY(parallel.offload_activations));
}

// The nearest batch that some data-parallel degree divides; else any.
void try_global_batch(Trials& trials) {
  const JobSpec& job = trials.job();
  if (!job.training.global_batch) return;
  const int64_t pinned = *job.training.global_batch;
  std::set<int64_t> multiples;
  for (const int64_t t : legal_tensor_degrees(job)) {
    for (const int64_t p : legal_pipeline_degrees(job, t)) {
      const int64_t data = world_size(job.cluster) / (t * p);
      multiples.insert({pinned / data * data, (pinned + data - 1) / data * data});
    }
  }
  std::vector<int64_t> nearest;
  for (const int64_t batch : multiples) {
    const bool allowed = batch * job.training.sequence_length <= job.training.max_tokens_per_batch;
    if (batch > 0 && batch != pinned && allowed) nearest.push_back(batch);
  }
  std::stable_sort(nearest.begin(), nearest.end(), [&](int64_t a, int64_t b) {
    return std::abs(a - pinned) < std::abs(b - pinned);
  });
  for (const int64_t batch : nearest) {
    const bool helps = trials.attempt(
        "training.global_batch", [&](JobSpec& changed) { changed.training.global_batch = batch; },
        [&](const Plan&) { return fmt::format("{} instead of {}", batch, pinned); });
    if (helps) return;
  }
  trials.unpin("training.global_batch", SMP_KEY(training.global_batch));
}

// Every key that is pinned, the ones that change the training last.
void try_unpinning(Trials& trials) {
  trials.unpin("training.micro_batch", SMP_KEY(training.micro_batch));
  trials.unpin("training.microbatches", SMP_KEY(training.microbatches));
  try_checkpointing(trials);
  try_shardings(trials);
  trials.unpin("parallel.tensor_parallel_degree", SMP_KEY(parallel.tensor_parallel_degree));
  const ParallelSpec& parallel = trials.job().parallel;
  if (parallel.pipeline_parallel_degree) {
    trials.attempt(
        "parallel.pipeline_parallel_degree",
        [](JobSpec& job) {
          job.parallel.pipeline_parallel_degree.reset();
          job.parallel.partition.clear();
        },
        [&](const Plan& plan) {
          return fmt::format("{} instead of {}", plan.degrees.pipeline,
                             *parallel.pipeline_parallel_degree);
        });
  }
  if (!parallel.partition.empty()) {
    trials.attempt(
        "parallel.partition", [](JobSpec& job) { job.parallel.partition.clear(); },
        [](const Plan& plan) {
          return fmt::format("auto, as even as {} stages can be", plan.degrees.pipeline);
        });
  }
  trials.unpin("parallel.pipeline", SMP_KEY(parallel.pipeline));
  trials.unpin("parallel.active_microbatches", SMP_KEY(parallel.active_microbatches));
  try_global_batch(trials);
  trials.unpin("training.precision", SMP_KEY(training.precision));
}

#undef SMP_KEY

void try_more_hosts(Trials& trials) {
  const ClusterSpec& cluster = trials.job().cluster;
  if (cluster.device == DeviceKind::kCpu) return;  // the engine runs on this host
  constexpr int64_t kMostHosts = 4096;
  for (int64_t hosts = 2 * cluster.hosts; hosts <= kMostHosts; hosts *= 2) {
    const bool helps = trials.attempt(
        "cluster.hosts", [&](JobSpec& changed) { changed.cluster.hosts = hosts; },
        [&](const Plan&) { return fmt::format("{} instead of {}", hosts, cluster.hosts); });
    if (helps) return;
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

// As much as the closest layout offloads, where that is more than a host has.
void try_more_host_memory(Trials& trials, const Evaluation& closest) {
  const int64_t has = trials.job().cluster.host_memory_bytes;
  if (has == 0 || closest.host_bytes <= has) return;
  const int64_t needed_mib = (closest.host_bytes + kMiB - 1) / kMiB;
  trials.attempt(
      "cluster.host_memory",
      [&](JobSpec& changed) { changed.cluster.host_memory_bytes = needed_mib * kMiB; },
      [&](const Plan&) {
        return fmt::format("{}MiB instead of {}", needed_mib, human_bytes(has));
      });
}

void try_larger_token_limit(Trials& trials) {
  const int64_t limit = trials.job().training.max_tokens_per_batch;
  trials.attempt(
      "training.max_tokens_per_batch",
      [](JobSpec& job) {
        job.training.max_tokens_per_batch = int64_t{1} << 60;
        if (!job.training.micro_batch) job.training.micro_batch = 1;
      },
      [&](const Plan& plan) {
        const TrainingSpec& training = plan.job.training;
        return fmt::format("{} instead of {}", *training.global_batch * training.sequence_length,
                           limit);
      });
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
    const std::string& problem = families.front().batch_problem;
    infeasible.problem = problem.empty() ? "no sharding is open with the keys that are pinned"
                                         : fmt::format("no batch is legal: {}", problem);
  } else {
    infeasible.problem = fmt::format("the closest layout ({}) needs {}",
                                     layout_words(closest->choice), closest->problem);
  }
  Trials trials(job);
  try_unpinning(trials);
  const int64_t needed = closest == nullptr ? 0 : memory_needed_mib(*closest, cluster);
  const bool little_memory = needed * kMiB <= cluster.memory_per_process_bytes * 5 / 4;
  const auto propose_memory = [&] {
    if (needed == 0) return;
    trials.helped().push_back(fmt::format("cluster.memory_per_process: {}MiB instead of {}", needed,
                                          human_bytes(cluster.memory_per_process_bytes)));
  };
  if (closest != nullptr) try_more_host_memory(trials, *closest);
  if (little_memory) propose_memory();
  try_more_hosts(trials);
  if (!little_memory) propose_memory();
  if (trials.helped().empty()) try_larger_token_limit(trials);
  infeasible.changes = std::move(trials.helped());
  return infeasible;
}

}  // namespace smp
