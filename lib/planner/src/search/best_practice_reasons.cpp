#include <fmt/format.h>

#include <algorithm>

#include "search/reasons.h"
#include "smp/plan/spec/job_names.h"
#include "smp/plan/text/units.h"
#include "smp/planner/choice/choice_words.h"
#include "smp/planner/memory/memory_model.h"

// The reasons of the strategy best-practice.
namespace smp::search {
namespace {

std::string problem_of(Pricer& pricer, const Candidate& candidate) {
  return memory_problem(pricer.job(), pricer.detail(candidate.choice));
}

std::string family_words(const FamilyResult& family) {
  return fmt::format("tensor {}, pipeline {}", family.tensor, family.pipeline);
}

// Why a family as a whole is out.
std::string family_problem(Pricer& pricer, const FamilyResult& family) {
  if (!family.problem.empty()) return family.problem;
  const Candidate* closest = nullptr;
  for (const Candidate& candidate : family.closest) {
    if (closest == nullptr || candidate.peak_bytes < closest->peak_bytes) closest = &candidate;
  }
  if (closest == nullptr) return "no sharding is legal";
  return fmt::format("{}: {}", choice::sharding_words(closest->choice),
                     problem_of(pricer, *closest));
}

// "tensor 2: pinned" or why fewer ranks a layer would not do.
std::string degree_reason(Pricer& pricer, const char* name, int64_t degree, bool pinned,
                          const std::vector<FamilyResult>& families, const FamilyResult& chosen,
                          bool pipeline) {
  if (pinned) return fmt::format("{} {}: pinned", name, degree);
  const FamilyResult* earlier = nullptr;  // the last family of an earlier step that was refused
  for (const FamilyResult& family : families) {
    const bool before =
        pipeline ? family.pipeline == 1 : family.tensor < chosen.tensor && family.pipeline == 1;
    if (before && !family.best) earlier = &family;
  }
  if (earlier == nullptr) return fmt::format("{} {}: the fastest that fits", name, degree);
  return fmt::format("{} {}: {} does not fit ({})", name, degree, family_words(*earlier),
                     family_problem(pricer, *earlier));
}

std::string sharding_reason(const choice::JobWithDefaults& defaulted, Pricer& pricer,
                            const FamilyResult& family) {
  const Candidate& best = *family.best;
  const ParallelSpec& parallel = defaulted.job.parallel;
  const std::string words = choice::sharding_words(best.choice);
  if (best.choice.sharding == Sharding::kNone) {
    if (defaulted.job.cluster.memory_per_process_bytes == 0) {
      return words + ": no memory limit is given";
    }
    return fmt::format("{}: {} a rank, {} allowed", words,
                       text::human_bytes(text::whole_bytes(best.peak_bytes)),
                       text::human_bytes(memory::allowed_bytes(defaulted.job.cluster)));
  }
  const bool degree_pinned = parallel.sharded_data_parallel_degree.has_value() ||
                             parallel.shard_optimizer_state == true || best.choice.shard == 1;
  if (parallel.sharding && degree_pinned) return words + ": pinned";
  if (family.smaller_shard) {
    return fmt::format("{}: the smallest shard degree that fits; {} needs {}", words,
                       choice::sharding_words(family.smaller_shard->choice),
                       problem_of(pricer, *family.smaller_shard));
  }
  return words + ": the smallest shard degree that fits";
}

std::string rival_reason(const FamilyResult& family) {
  const auto priced = [](const Candidate& candidate) {
    return fmt::format("{} takes {} a step", choice::sharding_words(candidate.choice),
                       text::human_time(candidate.step_s));
  };
  return fmt::format("offloading against a larger shard degree: {}, {}", priced(*family.best),
                     priced(*family.rival));
}

std::string batch_reason(const choice::JobWithDefaults& defaulted, Pricer& pricer,
                         const FamilyResult& family) {
  const choice::LayoutChoice& choice = family.best->choice;
  const TrainingSpec& training = defaulted.job.training;
  std::string reason = fmt::format("batch: {} (limit {})",
                                   choice::batch_equation({choice.micro_batch, choice.microbatches},
                                                          family.data, training.sequence_length),
                                   text::with_commas(training.max_tokens_per_batch));
  if (family.larger_batch) {
    const choice::LayoutChoice& larger = family.larger_batch->choice;
    reason += fmt::format("; micro batch {} x {} needs {}", larger.micro_batch, larger.microbatches,
                          problem_of(pricer, *family.larger_batch));
  }
  return reason;
}

std::string rate_words(const Candidate& candidate) {
  if (candidate.step_s == 0) {
    return fmt::format("step time unknown: the cluster names no rates; {} a rank",
                       text::human_bytes(text::whole_bytes(candidate.peak_bytes)));
  }
  return fmt::format("{} tokens/s, {} a step, {} a rank",
                     text::human_count(1 / candidate.seconds_per_token),
                     text::human_time(candidate.step_s),
                     text::human_bytes(text::whole_bytes(candidate.peak_bytes)));
}

}  // namespace

std::vector<std::string> reasons_of(const choice::JobWithDefaults& defaulted, Pricer& pricer,
                                    const FamilyResult& family,
                                    const std::vector<FamilyResult>& families) {
  const ParallelSpec& parallel = defaulted.job.parallel;
  std::vector<std::string> reasons = defaulted.reasons;
  reasons.push_back(sharding_reason(defaulted, pricer, family));
  if (family.rival) reasons.push_back(rival_reason(family));
  if (parallel.offload_activations.value_or(false)) {
    reasons.push_back("activations offloaded: pinned");
  }
  reasons.push_back(batch_reason(defaulted, pricer, family));
  if (family.tensor > 1 || parallel.tensor_parallel_degree) {
    reasons.push_back(degree_reason(pricer, "tensor", family.tensor,
                                    parallel.tensor_parallel_degree.has_value(), families, family,
                                    false));
  }
  if (family.pipeline > 1 || parallel.pipeline_parallel_degree) {
    reasons.push_back(degree_reason(pricer, "pipeline", family.pipeline,
                                    parallel.pipeline_parallel_degree.has_value(), families, family,
                                    true));
  }
  return reasons;
}

std::vector<FamilyVerdict> verdicts_of(Pricer& pricer, const std::vector<FamilyResult>& families,
                                       const FamilyResult* chosen) {
  std::vector<FamilyVerdict> verdicts;
  for (const FamilyResult& family : families) {
    FamilyVerdict verdict;
    verdict.tensor = family.tensor;
    verdict.pipeline = family.pipeline;
    if (!family.problem.empty()) {
      verdict.sharding = "any sharding";
      verdict.reason = family.problem;
      verdicts.push_back(verdict);
      continue;
    }
    for (const Candidate& closest : family.closest) {
      verdict.outcome = FamilyVerdict::Outcome::kRejected;
      verdict.sharding = choice::sharding_words(closest.choice);
      verdict.peak_bytes = closest.peak_bytes;
      verdict.reason = problem_of(pricer, closest);
      verdicts.push_back(verdict);
    }
    if (!family.best) continue;
    verdict.sharding = choice::sharding_words(family.best->choice);
    verdict.outcome =
        &family == chosen ? FamilyVerdict::Outcome::kChosen : FamilyVerdict::Outcome::kFits;
    verdict.step_s = family.best->step_s;
    verdict.seconds_per_token = family.best->seconds_per_token;
    verdict.peak_bytes = family.best->peak_bytes;
    verdict.reason = rate_words(*family.best);
    verdicts.push_back(verdict);
  }
  return verdicts;
}

}  // namespace smp::search
