#include "search/best_practice.h"

#include <algorithm>
#include <map>
#include <utility>

#include "search/search_space.h"
#include "smp/planner/choice/legality.h"

namespace smp::search {
namespace {

using ShardingByDegree = std::map<int64_t, std::vector<Sharding>>;  // ascending z

void keep_closest(std::optional<Candidate>& kept, const Candidate& candidate) {
  if (!kept || candidate.peak_bytes < kept->peak_bytes) kept = candidate;
}

// The search at one batch.
struct BatchResult {
  std::optional<Candidate> best;
  std::optional<Candidate> rival;
  std::optional<Candidate> smaller_shard;
  std::map<Sharding, Candidate> closest;
};

// A layout that fits, and the closest of the next smaller shard degree, which did not.
struct Found {
  Candidate fits;
  std::optional<Candidate> smaller;
};

class FamilySearch {
 public:
  FamilySearch(const SearchSpace& space, const SearchSpace::Split& split, Pricer& pricer)
      : space_(space), split_(split), pricer_(pricer) {
    for (const auto& open : space.shardings(split)) shardings_[open.degree].push_back(open.kind);
    const ParallelSpec& parallel = space.job().parallel;
    if (parallel.offload_activations) {
      offloads_ = {*parallel.offload_activations};
    } else if (space.job().cluster.device != DeviceKind::kCpu &&
               space.recomputes().front() == Recompute::kFull) {
      offloads_ = {false, true};
    }
  }

  BatchResult at(const choice::BatchShape& batch) {
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

 private:
  // The first schedule that is open; with even stages if that is all that fits.
  std::optional<Candidate> price_of(const choice::BatchShape& batch, Sharding kind, int64_t z,
                                    bool offload) {
    std::optional<Candidate> priced;
    const auto schedules = space_.schedules(split_, batch);
    for (const SearchSpace::ScheduleChoice& schedule : schedules) {
      if (&schedule != &schedules.front() && !schedule.even) break;
      if (priced && pricer_.accepts(priced->fit)) break;
      const auto choice = choice_of(batch, schedule, kind, z, offload);
      if (choice) priced = pricer_.price(*choice);
    }
    return priced;
  }

  std::optional<choice::LayoutChoice> choice_of(const choice::BatchShape& batch,
                                                const SearchSpace::ScheduleChoice& schedule,
                                                Sharding kind, int64_t z, bool offload) const {
    choice::LayoutChoice choice = space_.first_choice(split_, batch);
    const ParallelSpec& parallel = space_.job().parallel;
    space_.set_schedule(split_, schedule, choice);
    choice.sequence_parallel = split_.tensor > 1 && parallel.sequence_parallel.value_or(false);
    choice.placement = space_.placements(split_).front();
    choice.sharding = kind;
    choice.shard = static_cast<int32_t>(z);
    choice.replica = static_cast<int32_t>(split_.data / z);
    choice.offload_activations = offload;
    choice.offload_optimizer = parallel.offload_optimizer.value_or(false);
    choice.offload_parameters = parallel.offload_parameters.value_or(false);
    if (space_.forbidden().matches(choice)) return std::nullopt;
    return choice;
  }

  // The smallest shard degree that fits; of its kinds of sharding the fastest. below: 0 = any
  // degree.
  std::optional<Found> smallest(const choice::BatchShape& batch, bool offload, int64_t below,
                                BatchResult& result) {
    std::optional<Candidate> smaller;
    for (const auto& [z, kinds] : shardings_) {
      if (below > 0 && z >= below) break;
      std::optional<Candidate> fastest;
      std::optional<Candidate> failed;
      for (const Sharding kind : kinds) {
        const std::optional<Candidate> priced = price_of(batch, kind, z, offload);
        if (!priced) continue;
        const Candidate& candidate = *priced;
        if (!pricer_.accepts(candidate.fit)) {
          keep_closest(failed, candidate);
          const auto known = result.closest.find(kind);
          if (known == result.closest.end() || candidate.peak_bytes < known->second.peak_bytes) {
            result.closest.insert_or_assign(kind, candidate);
          }
        } else if (!fastest || candidate.seconds_per_token < fastest->seconds_per_token) {
          fastest = candidate;
        }
      }
      if (fastest) return Found{*fastest, smaller};
      if (failed) smaller = failed;
    }
    return std::nullopt;
  }

  const SearchSpace& space_;
  SearchSpace::Split split_;
  Pricer& pricer_;
  ShardingByDegree shardings_;
  std::vector<bool> offloads_ = {false};
};

void take(FamilyResult& family, BatchResult&& at) {
  family.best = at.best;
  family.rival = at.rival;
  family.smaller_shard = at.smaller_shard;
  family.closest.clear();
  for (auto& [kind, candidate] : at.closest) family.closest.push_back(candidate);
}

FamilyResult search_family(const SearchSpace& space, const SearchSpace::Split& split,
                           Pricer& pricer) {
  FamilyResult family;
  family.tensor = split.tensor;
  family.pipeline = split.pipeline;
  family.data = split.data;
  const choice::BatchChoices batches =
      choice::batch_choices(space.job(), split.pipeline, split.data);
  family.problem =
      batches.problem.empty() ? space.schedules_problem(split, batches.shapes) : batches.problem;

  FamilySearch search(space, split, pricer);
  for (const choice::BatchShape& batch : batches.shapes) {
    BatchResult at = search.at(batch);
    if (!at.best) {
      if (family.best) continue;
      take(family, std::move(at));
      family.larger_batch.reset();
      for (const Candidate& candidate : family.closest) {
        keep_closest(family.larger_batch, candidate);
      }
      continue;
    }
    if (!family.best || at.best->seconds_per_token < family.best->seconds_per_token) {
      take(family, std::move(at));
    }
    // Without stages a smaller batch is a later step of the practices; with stages the number of
    // microbatches decides the bubble, so all of them are compared.
    if (split.pipeline == 1) break;
  }
  return family;
}

// 0 = sharding alone, 1 = tensor parallelism, 2 = pipeline parallelism.
int step_of(const FamilyResult& family) {
  if (family.pipeline > 1) return 2;
  return family.tensor > 1 ? 1 : 0;
}

// The practices know no context and no expert degree: what is not pinned is the least.
bool practical(const JobSpec& job, const SearchSpace::Split& split) {
  const ParallelSpec& parallel = job.parallel;
  return (parallel.context_parallel_degree || split.context == 1) &&
         (parallel.expert_parallel_degree || split.expert == 1) &&
         (parallel.expert_tensor_degree || split.expert_tensor == split.tensor ||
          job.model.num_experts == 0);
}

}  // namespace

std::vector<FamilyResult> search_families(const choice::JobWithDefaults& defaulted,
                                          Pricer& pricer) {
  const SearchSpace space(defaulted);
  std::vector<FamilyResult> families;
  for (const SearchSpace::Split& split : space.splits()) {
    if (practical(defaulted.job, split)) families.push_back(search_family(space, split, pricer));
  }
  std::stable_sort(families.begin(), families.end(),
                   [](const FamilyResult& a, const FamilyResult& b) {
                     if (step_of(a) != step_of(b)) return step_of(a) < step_of(b);
                     return a.pipeline * a.tensor < b.pipeline * b.tensor;
                   });
  return families;
}

const FamilyResult* choose_by_practice(const std::vector<FamilyResult>& families) {
  constexpr double kEqual = 1.05;  // times that differ by less say nothing
  const FamilyResult* fastest = nullptr;
  for (const FamilyResult& family : families) {
    if (!family.best) continue;
    if (fastest != nullptr && step_of(family) > step_of(*fastest)) break;
    if (fastest == nullptr || family.best->seconds_per_token < fastest->best->seconds_per_token) {
      fastest = &family;
    }
  }
  if (fastest == nullptr) return nullptr;
  for (const FamilyResult& family : families) {
    if (family.best && step_of(family) == step_of(*fastest) &&
        family.best->seconds_per_token <= kEqual * fastest->best->seconds_per_token) {
      return &family;
    }
  }
  return fastest;
}

}  // namespace smp::search
