#include "family.h"

#include <map>
#include <memory>
#include <utility>

#include "smp/planner/legality.h"

namespace smp {
namespace {

using ShardingByDegree = std::map<int64_t, std::vector<Sharding>>;  // ascending z

// The kinds of sharding that the pins and the engine leave open, by shard degree.
ShardingByDegree open_shardings(const JobSpec& job, int64_t data) {
  const ParallelSpec& parallel = job.parallel;
  std::vector<Sharding> kinds;
  if (parallel.sharding) {
    kinds = {*parallel.sharding};
  } else {
    kinds = {Sharding::kNone};
    if (parallel.shard_optimizer_state.value_or(true)) kinds.push_back(Sharding::kOptimizerState);
    if (job.cluster.device != DeviceKind::kCpu) {
      kinds.push_back(Sharding::kGradients);
      kinds.push_back(Sharding::kParameters);
    }
  }
  std::optional<int64_t> pinned = parallel.sharded_data_parallel_degree;
  ShardingByDegree open;
  if (parallel.shard_optimizer_state == true) {  // over all of them
    if (pinned.value_or(data) != data) return open;
    pinned = data;
  }
  for (const int64_t z : divisors(data)) {
    if (pinned && *pinned != z) continue;
    for (const Sharding kind : kinds) {
      const bool alone = z == 1 && (kind == Sharding::kNone || data == 1);
      if (kind == Sharding::kNone ? z == 1 : z > 1 || (alone && kinds.size() == 1)) {
        open[z].push_back(kind);
      }
    }
  }
  return open;
}

std::vector<bool> open_offloads(const JobSpec& job) {
  const ParallelSpec& parallel = job.parallel;
  if (parallel.offload_activations) return {*parallel.offload_activations};
  const bool possible =
      job.cluster.device != DeviceKind::kCpu && parallel.activation_checkpointing.value_or(false);
  return possible ? std::vector<bool>{false, true} : std::vector<bool>{false};
}

bool closer(const Evaluation& a, const Evaluation& b) {
  return a.fullest.peak_bytes < b.fullest.peak_bytes;
}

void keep_closest(std::optional<Evaluation>& kept, const Evaluation& candidate) {
  if (!kept || closer(candidate, *kept)) kept = candidate;
}

// The search at one batch.
struct BatchResult {
  std::optional<Evaluation> best;
  std::optional<Evaluation> rival;
  std::optional<Evaluation> smaller_shard;
  std::map<Sharding, Evaluation> closest;
};

// A layout that fits, and the closest of the next smaller shard degree, which did not.
struct Found {
  Evaluation fits;
  std::optional<Evaluation> smaller;
};

class FamilySearch {
 public:
  FamilySearch(const SettledJob& settled, int64_t tensor, int64_t pipeline, int64_t data)
      : settled_(settled),
        tensor_(tensor),
        pipeline_(pipeline),
        shardings_(open_shardings(settled.job, data)),
        offloads_(open_offloads(settled.job)) {}

  BatchResult at(const BatchShape& batch) {
    BatchResult result;
    int64_t below = 0;  // offloading is tried instead of a larger shard degree, so below that one
    for (const bool offload : offloads_) {
      std::optional<Found> found = smallest(batch, offload, below, result);
      if (!found) continue;
      below = found->fits.choice.shard;
      const bool faster =
          result.best && found->fits.seconds_per_token < result.best->seconds_per_token;
      if (result.best && !faster) {
        result.rival = std::move(found->fits);
        continue;
      }
      result.rival = std::exchange(result.best, std::move(found->fits));
      result.smaller_shard = std::move(found->smaller);
    }
    return result;
  }

  int64_t evaluated() const { return evaluated_; }

 private:
  // The smallest shard degree that fits; of its kinds of sharding the fastest. below: 0 = any
  // degree.
  std::optional<Found> smallest(const BatchShape& batch, bool offload, int64_t below,
                                BatchResult& result) {
    std::unique_ptr<Models> models;
    std::optional<Evaluation> smaller;
    for (const auto& [z, kinds] : shardings_) {
      if (below > 0 && z >= below) break;
      std::optional<Evaluation> fastest;
      std::optional<Evaluation> failed;
      for (const Sharding kind : kinds) {
        ++evaluated_;
        const Choice choice{tensor_, pipeline_, kind, z, batch, offload};
        if (!models) models = std::make_unique<Models>(resolve(settled_, choice));
        Evaluation evaluation = evaluate(settled_, choice, *models);
        if (!evaluation.fits) {
          keep_closest(failed, evaluation);
          const auto known = result.closest.find(kind);
          if (known == result.closest.end() || closer(evaluation, known->second)) {
            result.closest.insert_or_assign(kind, evaluation);
          }
        } else if (!fastest || evaluation.seconds_per_token < fastest->seconds_per_token) {
          fastest = std::move(evaluation);
        }
      }
      if (fastest) return Found{std::move(*fastest), std::move(smaller)};
      if (failed) smaller = std::move(failed);
    }
    return std::nullopt;
  }

  const SettledJob& settled_;
  int64_t tensor_, pipeline_;
  ShardingByDegree shardings_;
  std::vector<bool> offloads_;
  int64_t evaluated_ = 0;
};

void take(FamilyResult& family, BatchResult&& at) {
  family.best = std::move(at.best);
  family.rival = std::move(at.rival);
  family.smaller_shard = std::move(at.smaller_shard);
  family.closest.clear();
  for (auto& [kind, evaluation] : at.closest) family.closest.push_back(std::move(evaluation));
}

}  // namespace

FamilyResult search_family(const SettledJob& settled, int64_t tensor, int64_t pipeline) {
  FamilyResult family;
  family.tensor = tensor;
  family.pipeline = pipeline;
  family.data = world_size(settled.job.cluster) / (tensor * pipeline);
  const BatchChoices batches = batch_choices(settled.job, pipeline, family.data);
  family.batch_problem = batches.problem;

  FamilySearch search(settled, tensor, pipeline, family.data);
  for (const BatchShape& batch : batches.shapes) {
    BatchResult at = search.at(batch);
    if (!at.best) {
      if (family.best) continue;
      take(family, std::move(at));
      family.larger_batch.reset();
      for (const Evaluation& evaluation : family.closest) {
        keep_closest(family.larger_batch, evaluation);
      }
      continue;
    }
    if (!family.best || at.best->seconds_per_token < family.best->seconds_per_token) {
      take(family, std::move(at));
    }
    // Without stages a smaller batch is a later step of the practices; with stages the number of
    // microbatches decides the bubble, so all of them are compared.
    if (pipeline == 1) break;
  }
  family.evaluated = search.evaluated();
  return family;
}

}  // namespace smp
