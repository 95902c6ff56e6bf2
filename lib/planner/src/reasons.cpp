#include "reasons.h"

#include <fmt/format.h>

#include <algorithm>

#include "smp/plan/job_names.h"
#include "smp/planner/memory_model.h"
#include "smp/planner/units.h"

namespace smp {
namespace {

std::string sharding_words(const Choice& choice) {
  std::string words =
      choice.sharding == Sharding::kNone
          ? "no sharding"
          : fmt::format("{} sharded over {}", name_of(choice.sharding), choice.shard);
  if (choice.offload) words += ", activations offloaded";
  return words;
}

std::string batch_words(const BatchShape& batch) {
  return fmt::format("micro batch {} x {}", batch.micro_batch, batch.microbatches);
}

std::string family_words(const FamilyResult& family) {
  return fmt::format("tensor {}, pipeline {}", family.tensor, family.pipeline);
}

// Why a family as a whole is out.
std::string family_problem(const FamilyResult& family) {
  if (!family.batch_problem.empty()) return family.batch_problem;
  const Evaluation* closest = nullptr;
  for (const Evaluation& evaluation : family.closest) {
    if (closest == nullptr || evaluation.fullest.peak_bytes < closest->fullest.peak_bytes) {
      closest = &evaluation;
    }
  }
  if (closest == nullptr) return "no sharding is open to it";
  return fmt::format("{}: {}", sharding_words(closest->choice), closest->problem);
}

std::string pinned_or(bool pinned, std::string otherwise) {
  return pinned ? "pinned" : std::move(otherwise);
}

// "tensor 2: pinned" or why fewer ranks a layer would not do.
std::string degree_reason(const char* name, int64_t degree, bool pinned,
                          const std::vector<FamilyResult>& families, const FamilyResult& chosen,
                          bool pipeline) {
  const FamilyResult* earlier = nullptr;  // the last family of an earlier step that was refused
  for (const FamilyResult& family : families) {
    const bool before =
        pipeline ? family.pipeline == 1 : family.tensor < chosen.tensor && family.pipeline == 1;
    if (before && !family.best) earlier = &family;
  }
  return fmt::format("{} {}: {}", name, degree,
                     pinned_or(pinned, earlier == nullptr ? std::string("the fastest that fits")
                                                          : fmt::format("{} does not fit ({})",
                                                                        family_words(*earlier),
                                                                        family_problem(*earlier))));
}

std::string sharding_reason(const SettledJob& settled, const FamilyResult& family) {
  const Evaluation& best = *family.best;
  const ParallelSpec& parallel = settled.job.parallel;
  const std::string words = sharding_words(best.choice);
  if (best.choice.sharding == Sharding::kNone) {
    if (settled.job.cluster.memory_per_process_bytes == 0) {
      return words + ": no memory limit is given";
    }
    return fmt::format("{}: {} a rank, {} allowed", words, human_bytes(best.fullest.peak_bytes),
                       human_bytes(allowed_bytes(settled.job.cluster)));
  }
  const bool degree_pinned = parallel.sharded_data_parallel_degree.has_value() ||
                             parallel.shard_optimizer_state == true || best.choice.shard == 1;
  if (parallel.sharding && degree_pinned) return words + ": pinned";
  if (family.smaller_shard) {
    return fmt::format("{}: the smallest shard degree that fits; {} needs {}", words,
                       sharding_words(family.smaller_shard->choice), family.smaller_shard->problem);
  }
  return words + ": the smallest shard degree that fits";
}

std::string rival_reason(const FamilyResult& family) {
  const Evaluation& best = *family.best;
  const Evaluation& rival = *family.rival;
  const auto priced = [](const Evaluation& evaluation) {
    return fmt::format("{} takes {} a step", sharding_words(evaluation.choice),
                       human_time(static_cast<double>(evaluation.step_ns) * 1e-9));
  };
  return fmt::format("offloading against a larger shard degree: {}, {}", priced(best),
                     priced(rival));
}

std::string batch_reason(const SettledJob& settled, const FamilyResult& family) {
  const BatchShape& batch = family.best->choice.batch;
  const TrainingSpec& training = settled.job.training;
  std::string reason = fmt::format("batch: {} (limit {})",
                                   batch_equation(batch, family.data, training.sequence_length),
                                   with_commas(training.max_tokens_per_batch));
  if (family.larger_batch) {
    reason += fmt::format("; {} needs {}", batch_words(family.larger_batch->choice.batch),
                          family.larger_batch->problem);
  }
  return reason;
}

std::string rate_words(const Evaluation& evaluation) {
  if (evaluation.step_ns == 0) return "step time unknown: the cluster names no rates";
  return fmt::format("{} tokens/s, {} a step, {} a rank",
                     human_count(1 / evaluation.seconds_per_token),
                     human_time(static_cast<double>(evaluation.step_ns) * 1e-9),
                     human_bytes(evaluation.fullest.peak_bytes));
}

}  // namespace

std::vector<std::string> reasons_of(const SettledJob& settled, const FamilyResult& family,
                                    const std::vector<FamilyResult>& families) {
  const ParallelSpec& parallel = settled.job.parallel;
  std::vector<std::string> reasons = settled.reasons;
  reasons.push_back(sharding_reason(settled, family));
  if (family.rival) reasons.push_back(rival_reason(family));
  if (parallel.offload_activations.value_or(false)) {
    reasons.push_back("activations offloaded: pinned");
  }
  reasons.push_back(batch_reason(settled, family));
  if (family.tensor > 1 || parallel.tensor_parallel_degree) {
    reasons.push_back(degree_reason("tensor", family.tensor,
                                    parallel.tensor_parallel_degree.has_value(), families, family,
                                    false));
  }
  if (family.pipeline > 1 || parallel.pipeline_parallel_degree) {
    reasons.push_back(degree_reason("pipeline", family.pipeline,
                                    parallel.pipeline_parallel_degree.has_value(), families, family,
                                    true));
  }
  return reasons;
}

std::vector<FamilyVerdict> verdicts_of(const SettledJob&, const std::vector<FamilyResult>& families,
                                       const FamilyResult* chosen) {
  std::vector<FamilyVerdict> verdicts;
  for (const FamilyResult& family : families) {
    FamilyVerdict verdict;
    verdict.tensor = family.tensor;
    verdict.pipeline = family.pipeline;
    if (!family.batch_problem.empty()) {
      verdict.sharding = "any sharding";
      verdict.reason = family.batch_problem;
      verdicts.push_back(verdict);
      continue;
    }
    for (const Evaluation& closest : family.closest) {
      verdict.outcome = FamilyVerdict::Outcome::kRejected;
      verdict.sharding = sharding_words(closest.choice);
      verdict.reason = closest.problem;
      verdicts.push_back(verdict);
    }
    if (!family.best) continue;
    verdict.sharding = sharding_words(family.best->choice);
    verdict.outcome =
        &family == chosen ? FamilyVerdict::Outcome::kChosen : FamilyVerdict::Outcome::kFits;
    verdict.reason = rate_words(*family.best);
    verdicts.push_back(verdict);
  }
  return verdicts;
}

}  // namespace smp
