#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "search/collectives_choice.h"
#include "search/exact.h"
#include "search/reasons.h"
#include "search/stage_balance.h"
#include "smp/plan/spec/job_names.h"
#include "smp/plan/text/units.h"
#include "smp/planner/choice/choice_words.h"

// The reasons of the strategy fastest: each choice against its neighbours, priced.
namespace smp::search {
namespace {

std::string rate_words(double step_s, double seconds_per_token) {
  if (step_s == 0) return "step time unknown: the cluster names no rates";
  return fmt::format("{} tokens/s, {} a step", text::human_count(1 / seconds_per_token),
                     text::human_time(step_s));
}

// Why something that takes less time than the choice is not the choice.
std::string beside(const Candidate& chosen, double seconds_per_token) {
  if (seconds_per_token >= chosen.seconds_per_token) return "";
  return fmt::format(", and times within {:.0f} % count as equal", 100 * (kNoise - 1));
}

// With the time of its very schedule.
Candidate simulated(const choice::JobWithDefaults& defaulted, Pricer& pricer, Candidate candidate) {
  if (candidate.step_s == 0 || !is_simulated(defaulted.job, candidate.choice)) return candidate;
  const double step_s = simulated_step_s(defaulted, pricer, candidate.choice);
  candidate.seconds_per_token *= step_s / candidate.step_s;
  candidate.step_s = step_s;
  return candidate;
}

class Reasons {
 public:
  Reasons(const choice::JobWithDefaults& defaulted, Pricer& pricer, const Candidate& chosen,
          const Candidate* faster, const FastestResult& result)
      : defaulted_(defaulted),
        parallel_(defaulted.job.parallel),
        pricer_(pricer),
        chosen_(chosen),
        choice_(chosen.choice),
        faster_(faster),
        result_(result) {}

  std::vector<std::string> all() {
    lines_ = defaulted_.reasons;
    say_rate();
    say_sharding();
    say_offload();
    say_recompute();
    say_schedule();
    say_batch();
    using Split = SearchSpace::Split;
    say_degree("tensor", choice_.tensor, parallel_.tensor_parallel_degree,
               [](const Split& s) { return s.tensor; });
    say_degree("pipeline", choice_.pipeline, parallel_.pipeline_parallel_degree,
               [](const Split& s) { return s.pipeline; });
    say_degree("context", choice_.context, parallel_.context_parallel_degree,
               [](const Split& s) { return s.context; });
    say_degree("expert", choice_.expert, parallel_.expert_parallel_degree,
               [](const Split& s) { return s.expert; });
    say_collectives();
    return std::move(lines_);
  }

 private:
  template <class... T>
  void say(fmt::format_string<T...> format, T&&... values) {
    lines_.push_back(fmt::format(format, std::forward<T>(values)...));
  }

  // What a neighbour of the choice would cost: "needs 45.1 GiB a rank, ..." or "takes 3.2 s a
  // step", by the prices by which the choice was made.
  std::string neighbour(const choice::LayoutChoice& other) {
    PricedLayout layout = pricer_.detail(other);
    if (!pricer_.accepts(layout.fit)) return "needs " + memory_problem(defaulted_.job, layout);
    if (layout.time.step_s == 0) return "fits as well";
    const double step_s = simulated_or(other, layout.time.step_s);
    const double per_token = layout.seconds_per_token * step_s / layout.time.step_s;
    // What is faster and was not taken for its simplicity may not fit by its very schedule.
    if (per_token < chosen_.seconds_per_token && other.pipeline > 1) {
      const auto exact = price_exactly(defaulted_, pricer_, other);
      if (!exact) return "needs more memory than allowed, by its exact schedule";
    }
    const bool same_batch = other.data() * other.micro_batch * other.microbatches ==
                            choice_.data() * choice_.micro_batch * choice_.microbatches;
    return (same_batch ? fmt::format("takes {} a step", text::human_time(step_s))
                       : fmt::format("gives {} tokens/s", text::human_count(1 / per_token))) +
           beside(chosen_, per_token);
  }

  double simulated_or(const choice::LayoutChoice& choice, double closed_s) const {
    return is_simulated(defaulted_.job, choice) ? simulated_step_s(defaulted_, pricer_, choice)
                                                : closed_s;
  }

  void say_rate() {
    std::string line = fmt::format("fastest of {} layouts priced: {}",
                                   text::with_commas(pricer_.statistics().evaluations),
                                   rate_words(chosen_.step_s, chosen_.seconds_per_token));
    if (faster_ != nullptr) {
      line += fmt::format(
          "; {:.1f} % slower than {}, and simpler: times within {:.0f} % count as equal",
          100 * (chosen_.seconds_per_token / faster_->seconds_per_token - 1),
          choice::describe(faster_->choice), 100 * (kNoise - 1));
    }
    lines_.push_back(std::move(line));
    if (chosen_.fit == prediction::Fit::kTight) {
      say("tight: {}; no layout fits with a margin",
          memory_problem(defaulted_.job, pricer_.detail(choice_)));
    }
  }

  void say_sharding() {
    const std::string words = choice::sharding_words(choice_);
    if (choice_.sharding == Sharding::kNone) {
      if (choice_.data() == 1) return;
      return say("{}: {} a rank", words, text::human_bytes(text::whole_bytes(chosen_.peak_bytes)));
    }
    if (parallel_.sharding && parallel_.sharded_data_parallel_degree) {
      return say("{}: pinned", words);
    }
    choice::LayoutChoice other = choice_;
    int32_t smaller = choice_.shard;
    do {
      --smaller;
    } while (smaller > 1 && choice_.data() % smaller != 0);
    std::string line = words;
    if (smaller >= 1 && choice_.shard > 1) {
      other.shard = smaller;
      other.replica = static_cast<int32_t>(choice_.data() / smaller);
      if (smaller == 1) other.sharding = Sharding::kNone;
      line += fmt::format(": {} {}", choice::sharding_words(other), neighbour(other));
    }
    if (choice_.sharding == Sharding::kParameters) {
      other = choice_;
      other.sharding = Sharding::kOptimizerState;
      other.offload_parameters = false;
      line += fmt::format("; {} {}", choice::sharding_words(other), neighbour(other));
    }
    if (choice_.shard > 1 && smaller > 1) {  // what a job without any sharding would need
      other = choice_;
      other.shard = 1;
      other.replica = static_cast<int32_t>(choice_.data());
      other.sharding = Sharding::kNone;
      other.offload_parameters = false;
      line += fmt::format("; {} {}", choice::sharding_words(other), neighbour(other));
    }
    lines_.push_back(std::move(line));
  }

  void say_offload() {
    const auto without = [&](bool choice::LayoutChoice::*kind, const char* name, bool pinned) {
      if (!(choice_.*kind)) return;
      if (pinned) return say("{} offloaded: pinned", name);
      choice::LayoutChoice other = choice_;
      other.*kind = false;
      say("{} offloaded: without it the layout {}", name, neighbour(other));
    };
    without(&choice::LayoutChoice::offload_activations, "activations",
            parallel_.offload_activations.has_value());
    without(&choice::LayoutChoice::offload_optimizer, "optimizer",
            parallel_.offload_optimizer.has_value());
    without(&choice::LayoutChoice::offload_parameters, "parameters",
            parallel_.offload_parameters.has_value());
  }

  void say_recompute() {
    if (choice_.recompute == Recompute::kNone) return;
    if (parallel_.recompute || parallel_.activation_checkpointing) {
      return say("{}: pinned", choice::recompute_words(choice_));
    }
    choice::LayoutChoice other = choice_;
    if (choice_.recompute_layers > 1) {
      other.recompute_layers = choice_.recompute_layers - 1;
      return say("{}: the smallest number that fits; {} {}", choice::recompute_words(choice_),
                 other.recompute_layers, neighbour(other));
    }
    other.recompute = Recompute::kNone;
    other.recompute_layers = -1;
    other.offload_activations = false;
    say("{}: without it the layout {}", choice::recompute_words(choice_), neighbour(other));
  }

  void say_schedule() {
    if (choice_.pipeline == 1) return;
    if (parallel_.pipeline)
      return say("pipeline schedule {}: pinned", choice::schedule_words(choice_));
    choice::LayoutChoice other = choice_;
    other.schedule = PipelineKind::kInterleaved;
    other.virtual_stages = 1;
    if (other == choice_) {
      return say("pipeline schedule {}: the simplest of the fastest schedules",
                 choice::schedule_words(choice_));
    }
    say("pipeline schedule {}: {} {}", choice::schedule_words(choice_),
        choice::schedule_words(other), neighbour(other));
  }

  void say_batch() {
    const TrainingSpec& training = defaulted_.job.training;
    std::string line =
        fmt::format("batch: {} (limit {})",
                    choice::batch_equation({choice_.micro_batch, choice_.microbatches},
                                           choice_.data(), training.sequence_length),
                    text::with_commas(training.max_tokens_per_batch));
    if (!training.micro_batch) {
      choice::LayoutChoice other = choice_;
      if (choice_.microbatches % 2 == 0 && choice_.virtual_stages == 1) {
        other.micro_batch *= 2;
        other.microbatches /= 2;
        line += fmt::format("; micro batch {} x {} {}", other.micro_batch, other.microbatches,
                            neighbour(other));
      } else if (choice_.micro_batch % 2 == 0) {
        other.micro_batch /= 2;
        other.microbatches *= 2;
        line += fmt::format("; micro batch {} x {} {}", other.micro_batch, other.microbatches,
                            neighbour(other));
      }
    }
    lines_.push_back(std::move(line));
  }

  // What moves GPUs' memory in each kind of group, priced.
  void say_collectives() {
    for (std::string& reason : choose_collectives(pricer_, choice_).reasons) {
      lines_.push_back(std::move(reason));
    }
  }

  // The best of every other value of a degree.
  template <class Degree>
  void say_degree(const char* name, int32_t chosen, const std::optional<int64_t>& pinned,
                  Degree degree) {
    if (pinned) {
      if (chosen > 1 || *pinned > 1) say("{} {}: pinned", name, chosen);
      return;
    }
    struct Best {
      const Candidate* fits = nullptr;
      const Candidate* closest = nullptr;
      double least = std::numeric_limits<double>::infinity();
      std::string problem;
    };
    std::map<int32_t, Best> others;
    for (const SplitResult& split : result_.splits) {
      const int32_t value = degree(split.split);
      if (value == chosen) continue;
      Best& best = others[value];
      if (const Candidate* own = split.fits.fastest();
          own != nullptr &&
          (best.fits == nullptr || own->seconds_per_token < best.fits->seconds_per_token)) {
        best.fits = own;
      }
      if (split.closest &&
          (best.closest == nullptr || split.closest->peak_bytes < best.closest->peak_bytes)) {
        best.closest = &*split.closest;
      }
      best.least = std::min(best.least, split.least_seconds_per_token);
      if (!split.problem.empty()) best.problem = split.problem;
    }
    std::vector<std::string> words;
    for (const auto& [value, best] : others) {
      // The two nearest degrees say enough.
      const bool near = value < chosen ? std::next(others.find(value)) == others.end() ||
                                             std::next(others.find(value))->first > chosen
                                       : value == others.upper_bound(chosen)->first;
      if (!near) continue;
      if (best.fits != nullptr && best.fits->seconds_per_token == 0) {
        words.push_back(fmt::format(
            "{} {} fits as well; without rates of the cluster their times cannot be compared", name,
            value));
      } else if (best.fits != nullptr) {
        const double per_token = simulated(defaulted_, pricer_, *best.fits).seconds_per_token;
        words.push_back(fmt::format("{} {} gives {} tokens/s at best{}", name, value,
                                    text::human_count(1 / per_token), beside(chosen_, per_token)));
      } else if (std::isfinite(best.least)) {
        words.push_back(fmt::format("{} {} gives at most {} tokens/s by its compute time alone{}",
                                    name, value, text::human_count(1 / best.least),
                                    beside(chosen_, best.least)));
      } else if (best.closest != nullptr) {
        words.push_back(
            fmt::format("{} {} needs {}", name, value,
                        memory_problem(defaulted_.job, pricer_.detail(best.closest->choice))));
      } else if (!best.problem.empty()) {
        words.push_back(fmt::format("{} {}: {}", name, value, best.problem));
      }
    }
    if (!words.empty()) say("{} {}: {}", name, chosen, fmt::join(words, "; "));
  }

  const choice::JobWithDefaults& defaulted_;
  const ParallelSpec& parallel_;
  Pricer& pricer_;
  const Candidate& chosen_;
  const choice::LayoutChoice& choice_;
  const Candidate* faster_;
  const FastestResult& result_;
  std::vector<std::string> lines_;
};

}  // namespace

std::vector<std::string> reasons_of(const choice::JobWithDefaults& defaulted, Pricer& pricer,
                                    const Candidate& chosen, const Candidate* faster,
                                    const FastestResult& result) {
  return Reasons(defaulted, pricer, chosen, faster, result).all();
}

std::vector<FamilyVerdict> verdicts_of(const choice::JobWithDefaults& defaulted, Pricer& pricer,
                                       const FastestResult& result, const Candidate* chosen) {
  std::vector<FamilyVerdict> verdicts;
  for (const SplitResult& split : result.splits) {
    FamilyVerdict verdict;
    verdict.tensor = split.split.tensor;
    verdict.pipeline = split.split.pipeline;
    verdict.context = split.split.context;
    verdict.expert = split.split.expert;
    const bool has_chosen = chosen != nullptr && is_of(split.split, chosen->choice);
    if (const Candidate* own = has_chosen ? chosen : split.fits.choose()) {
      const Candidate best = has_chosen ? *own : simulated(defaulted, pricer, *own);
      verdict.outcome =
          has_chosen ? FamilyVerdict::Outcome::kChosen : FamilyVerdict::Outcome::kFits;
      verdict.sharding = choice::sharding_words(best.choice);
      verdict.step_s = best.step_s;
      verdict.seconds_per_token = best.seconds_per_token;
      verdict.peak_bytes = best.peak_bytes;
      verdict.reason = fmt::format(
          "{}, {} a rank ({}){}", rate_words(best.step_s, best.seconds_per_token),
          text::human_bytes(text::whole_bytes(best.peak_bytes)), choice::describe(best.choice),
          chosen == nullptr ? "" : beside(*chosen, best.seconds_per_token));
    } else if (!split.problem.empty()) {
      verdict.sharding = "any sharding";
      verdict.reason = split.problem;
    } else if (std::isfinite(split.least_seconds_per_token)) {
      verdict.sharding = "any sharding";
      verdict.reason =
          fmt::format("at most {} tokens/s by its compute time alone{}",
                      text::human_count(1 / split.least_seconds_per_token),
                      chosen == nullptr ? "" : beside(*chosen, split.least_seconds_per_token));
    } else if (split.closest) {
      verdict.sharding = choice::sharding_words(split.closest->choice);
      verdict.peak_bytes = split.closest->peak_bytes;
      verdict.reason = memory_problem(pricer.job(), pricer.detail(split.closest->choice));
    } else {
      verdict.sharding = "any sharding";
      verdict.reason = "no layout is legal with the pinned keys";
    }
    verdicts.push_back(std::move(verdict));
  }
  // What was chosen, what fits by time, then the others as their degrees rise.
  std::stable_sort(verdicts.begin(), verdicts.end(),
                   [](const FamilyVerdict& a, const FamilyVerdict& b) {
                     if (a.outcome != b.outcome) return a.outcome < b.outcome;
                     return a.outcome == FamilyVerdict::Outcome::kFits &&
                            a.seconds_per_token < b.seconds_per_token;
                   });
  return verdicts;
}

}  // namespace smp::search
