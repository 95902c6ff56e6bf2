#include "smp/planner/search.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "family.h"
#include "infeasible.h"
#include "reasons.h"
#include "smp/plan/check.h"
#include "smp/plan/engine_rules.h"
#include "smp/plan/errors.h"
#include "smp/plan/layout.h"
#include "smp/planner/legality.h"
#include "smp/planner/predict.h"
#include "smp/planner/units.h"

namespace smp {
namespace {

// What is pinned must be what the engine runs, where the engine is what will run it.
void require_engine(const JobSpec& job) {
  if (job.cluster.device != DeviceKind::kCpu) return;
  Plan pinned;
  pinned.job = job;
  const std::vector<std::string> broken = what_engine_cannot_run(pinned);
  if (!broken.empty()) {
    throw ConfigError(
        fmt::format("device cpu is run by the engine of this version, which lacks\n  {}",
                    fmt::join(broken, "\n  ")));
  }
}

void require_batch_limit(const TrainingSpec& training) {
  if (!training.global_batch) return;
  const int64_t tokens = *training.global_batch * training.sequence_length;
  if (tokens <= training.max_tokens_per_batch) return;
  throw ConfigError(fmt::format(
      "training.global_batch: {} x {} tokens = {} > max_tokens_per_batch {}: {} samples are the "
      "most",
      with_commas(*training.global_batch), with_commas(training.sequence_length),
      with_commas(tokens), with_commas(training.max_tokens_per_batch),
      with_commas(training.max_tokens_per_batch / training.sequence_length)));
}

// 0 = sharding alone, 1 = tensor parallelism, 2 = pipeline parallelism.
int step_of(const FamilyResult& family) {
  if (family.pipeline > 1) return 2;
  return family.tensor > 1 ? 1 : 0;
}

// Predicted times that differ by less say nothing: the same plan measured twice differs by 3 to 6
// %.
constexpr double kNoise = 1.05;

// The first step with a layout that fits; in it the smallest degrees that are as fast as the
// fastest.
const FamilyResult* choose(const std::vector<FamilyResult>& families) {
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
        family.best->seconds_per_token <= kNoise * fastest->best->seconds_per_token) {
      return &family;
    }
  }
  return fastest;
}

Plan finished(const SettledJob& settled, const FamilyResult& family,
              const std::vector<FamilyResult>& families) {
  Plan plan = resolve(settled, family.best->choice);
  plan.job.parallel.partition = blocks_per_stage(plan.job.model.num_layers, plan.degrees.pipeline,
                                                 plan.job.parallel.partition);
  plan.reasons = reasons_of(settled, family, families);
  plan.predictions = predict(plan);
  return plan;
}

}  // namespace

std::string_view name_of(FamilyVerdict::Outcome outcome) {
  switch (outcome) {
    case FamilyVerdict::Outcome::kChosen: return "chosen";
    case FamilyVerdict::Outcome::kFits: return "fits";
    case FamilyVerdict::Outcome::kRejected: return "rejected";
  }
  check_failed(__FILE__, __LINE__, "unknown outcome");
}

std::vector<FamilyResult> search_families(const SettledJob& settled) {
  const ParallelSpec& parallel = settled.job.parallel;
  std::vector<FamilyResult> families;
  for (const int64_t t : legal_tensor_degrees(settled.job)) {
    if (parallel.tensor_parallel_degree && *parallel.tensor_parallel_degree != t) continue;
    for (const int64_t p : legal_pipeline_degrees(settled.job, t)) {
      if (parallel.pipeline_parallel_degree && *parallel.pipeline_parallel_degree != p) continue;
      families.push_back(search_family(settled, t, p));
    }
  }
  // The order of the steps; within one, as the degrees rise.
  std::stable_sort(families.begin(), families.end(),
                   [](const FamilyResult& a, const FamilyResult& b) {
                     if (step_of(a) != step_of(b)) return step_of(a) < step_of(b);
                     return a.pipeline * a.tensor < b.pipeline * b.tensor;
                   });
  return families;
}

SearchResult plan_job(const JobSpec& job, int64_t top) {
  require_legal_pins(job);
  require_batch_limit(job.training);
  const SettledJob settled = settle(job);
  require_engine(settled.job);

  const std::vector<FamilyResult> families = search_families(settled);
  const FamilyResult* chosen = choose(families);
  SearchResult result;
  for (const FamilyResult& family : families) result.evaluated += family.evaluated;
  result.families = verdicts_of(settled, families, chosen);
  if (chosen == nullptr) {
    result.best = explain_infeasible(job, settled, families);
    return result;
  }
  result.best = finished(settled, *chosen, families);

  std::vector<const FamilyResult*> others;
  for (const FamilyResult& family : families) {
    if (family.best && &family != chosen) others.push_back(&family);
  }
  std::stable_sort(others.begin(), others.end(), [](const FamilyResult* a, const FamilyResult* b) {
    return a->best->seconds_per_token < b->best->seconds_per_token;
  });
  others.resize(std::min(others.size(), static_cast<size_t>(std::max<int64_t>(0, top - 1))));
  for (const FamilyResult* family : others) {
    result.others.push_back(finished(settled, *family, families));
  }
  return result;
}

}  // namespace smp
