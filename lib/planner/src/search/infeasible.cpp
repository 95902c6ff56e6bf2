#include "search/infeasible.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <optional>
#include <set>
#include <string_view>

#include "search/job_search.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/rules/degree_rules.h"
#include "smp/plan/spec/job_names.h"
#include "smp/plan/text/units.h"
#include "smp/planner/choice/choice_words.h"
#include "smp/planner/choice/legality.h"
#include "smp/planner/memory/memory_model.h"

namespace smp::search {
namespace {

// The plan of a changed job, if a layout fits it. A change that breaks a pin is no change that
// helps.
std::optional<Plan> solve(const JobSpec& job, choice::Strategy strategy) {
  try {
    const SearchOptions options{.strategy = strategy};
    return JobSearch(job, options).best_plan();
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

// Changes that were tried and helped, in the order of the trials.
class Trials {
 public:
  Trials(const JobSpec& job, choice::Strategy strategy) : job_(job), strategy_(strategy) {}

  // Tries the job with `change`; `words` says the key's value in the plan that then fits.
  bool attempt(const std::string& key, const std::function<void(JobSpec&)>& change,
               const std::function<std::string(const Plan&)>& words) {
    JobSpec changed = job_;
    change(changed);
    const std::optional<Plan> plan = solve(changed, strategy_);
    if (plan) helped_.push_back(fmt::format("{}: {}", key, words(*plan)));
    return plan.has_value();
  }

  // Whether the job with `change` has a layout that fits.
  bool helps(const std::function<void(JobSpec&)>& change) const {
    JobSpec changed = job_;
    change(changed);
    return solve(changed, strategy_).has_value();
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
  choice::Strategy strategy_;
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
  const std::optional<Recompute>& recompute = job.parallel.recompute;
  if (!recompute && job.parallel.activation_checkpointing == false) {
    trials.unpin("parallel.activation_checkpointing", SMP_KEY(parallel.activation_checkpointing)) ||
        trials.attempt(
            "parallel.activation_checkpointing",
            [](JobSpec& changed) { changed.parallel.activation_checkpointing = true; },
            [](const Plan&) { return "true instead of false"; });
  }
  if (recompute) {  // which a job file says in both keys, whichever is written
    trials.attempt(
        "parallel.recompute",
        [](JobSpec& changed) {
          changed.parallel.recompute.reset();
          changed.parallel.activation_checkpointing.reset();
        },
        [&](const Plan& plan) {
          return fmt::format("{} instead of {}", name_of(*plan.job.parallel.recompute),
                             name_of(*recompute));
        });
  }
  trials.unpin("parallel.recompute_layers", SMP_KEY(parallel.recompute_layers));
  trials.unpin("parallel.offload_activations", SMP_KEY(parallel.offload_activations));
  trials.unpin("parallel.offload_optimizer", SMP_KEY(parallel.offload_optimizer));
  trials.unpin("parallel.offload_parameters", SMP_KEY(parallel.offload_parameters));
  trials.unpin("parallel.sequence_parallel", SMP_KEY(parallel.sequence_parallel));
}

// The nearest batch that some data-parallel degree divides; else any.
void try_global_batch(Trials& trials) {
  const JobSpec& job = trials.job();
  if (!job.training.global_batch) return;
  const int64_t pinned = *job.training.global_batch;
  std::set<int64_t> multiples;
  for (const int64_t t : choice::legal_tensor_degrees(job)) {
    for (const int64_t p : choice::legal_pipeline_degrees(job, t)) {
      const int64_t data = rules::world_size(job.cluster) / (t * p);
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
          return fmt::format("auto, the most even division into {} stages", plan.degrees.pipeline);
        });
  }
  trials.unpin("parallel.pipeline", SMP_KEY(parallel.pipeline));
  trials.unpin("parallel.virtual_pipeline_degree", SMP_KEY(parallel.virtual_pipeline_degree));
  trials.unpin("parallel.context_parallel_degree", SMP_KEY(parallel.context_parallel_degree));
  trials.unpin("parallel.context_exchange_degree", SMP_KEY(parallel.context_exchange_degree));
  trials.unpin("parallel.expert_parallel_degree", SMP_KEY(parallel.expert_parallel_degree));
  trials.unpin("parallel.expert_tensor_degree", SMP_KEY(parallel.expert_tensor_degree));
  trials.unpin("parallel.active_microbatches", SMP_KEY(parallel.active_microbatches));
  if (!parallel.forbid.empty()) {
    trials.attempt(
        "parallel.forbid", [](JobSpec& job) { job.parallel.forbid.clear(); },
        [](const Plan&) { return "without it"; });
  }
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

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kLargestDeviceMib = 284208;  // configs/clusters/gb300.yaml

int64_t whole_mib(double bytes) { return (static_cast<int64_t>(bytes + 0.5) + kMiB - 1) / kMiB; }

// With which the closest layout fits with its margin; 0 = memory is not what lacks.
int64_t memory_needed_mib(const JobSpec& job, const PricedLayout& closest) {
  const ClusterSpec& cluster = job.cluster;
  const double high = std::max(closest.memory.peak_bytes,
                               prediction::memory_range(job, closest.choice, closest.memory).high);
  if (high <= static_cast<double>(memory::allowed_bytes(cluster))) return 0;
  return whole_mib(high + static_cast<double>(cluster.memory_per_process_bytes) -
                   static_cast<double>(memory::allowed_bytes(cluster)));
}

// As much as the closest layout offloads, where that is more than a host has.
void try_more_host_memory(Trials& trials, const PricedLayout& closest) {
  const int64_t has = trials.job().cluster.host_memory_bytes;
  const double needed = host_bytes_needed(trials.job(), closest.memory);
  if (has == 0 || needed <= static_cast<double>(has)) return;
  const int64_t needed_mib = whole_mib(needed);
  trials.attempt(
      "cluster.host_memory",
      [&](JobSpec& changed) { changed.cluster.host_memory_bytes = needed_mib * kMiB; },
      [&](const Plan&) {
        return fmt::format("{}MiB instead of {}", needed_mib, text::human_bytes(has));
      });
}

// A tenth more each time, where the exact prices of that layout are above its closed form; no more
// than there is to buy.
void try_memory(Trials& trials, int64_t needed_mib) {
  if (needed_mib == 0) return;
  const ClusterSpec& cluster = trials.job().cluster;
  const int64_t has = cluster.memory_per_process_bytes;
  for (int tries = 0; tries < 5; ++tries, needed_mib += (needed_mib + 9) / 10) {
    if (cluster.device == DeviceKind::kCuda && needed_mib > kLargestDeviceMib) return;
    const bool helps = trials.attempt(
        "cluster.memory_per_process",
        [&](JobSpec& changed) { changed.cluster.memory_per_process_bytes = needed_mib * kMiB; },
        [&](const Plan&) {
          return fmt::format("{}MiB instead of {}", needed_mib, text::human_bytes(has));
        });
    if (helps) return;
  }
}

// The most layers that fit, by bisection.
void try_fewer_layers(Trials& trials) {
  const int64_t has = trials.job().model.num_layers;
  const auto with = [](int64_t layers) {
    return [layers](JobSpec& changed) {
      changed.model.num_layers = layers;
      changed.parallel.partition.clear();
    };
  };
  int64_t fits = 0;
  int64_t too_many = has;
  while (too_many - fits > 1) {
    const int64_t middle = (fits + too_many) / 2;
    (trials.helps(with(middle)) ? fits : too_many) = middle;
  }
  if (fits == 0) return;
  trials.attempt("model.num_layers", with(fits),
                 [&](const Plan&) { return fmt::format("{} instead of {}", fits, has); });
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

}  // namespace

Infeasible explain_infeasible(const JobSpec& job, choice::Strategy strategy, Pricer& pricer,
                              const std::optional<Candidate>& closest, const std::string& problem) {
  Infeasible infeasible;
  const ClusterSpec& cluster = job.cluster;
  std::optional<PricedLayout> layout;
  if (closest) {
    layout = pricer.detail(closest->choice);
    infeasible.problem =
        fmt::format("the closest layout ({}) needs {}", choice::describe(closest->choice),
                    memory_problem(pricer.job(), *layout));
  } else {
    infeasible.problem = problem;
  }
  Trials trials(job, strategy);
  try_unpinning(trials);
  const int64_t needed = layout ? memory_needed_mib(pricer.job(), *layout) : 0;
  const bool little_memory = needed * kMiB <= cluster.memory_per_process_bytes * 5 / 4;
  if (layout) try_more_host_memory(trials, *layout);
  if (little_memory) try_memory(trials, needed);
  try_more_hosts(trials);
  if (!little_memory) try_memory(trials, needed);
  if (layout) try_fewer_layers(trials);
  if (trials.helped().empty()) try_larger_token_limit(trials);
  infeasible.changes = std::move(trials.helped());
  return infeasible;
}

}  // namespace smp::search
