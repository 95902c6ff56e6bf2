#include "search/job_search.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "search/exact_search.h"
#include "search/reasons.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/rules/engine_rules.h"
#include "smp/plan/text/units.h"
#include "smp/planner/choice/choice_words.h"
#include "smp/planner/choice/legality.h"

namespace smp::search {
namespace {

// The closed form of the best may be below its simulation by this without another search.
constexpr double kBelow = 1.015;

constexpr const char* kNoDegree = "no tensor and pipeline degree is legal with the pinned keys";

// What is pinned must be what the engine runs, where the engine is what will run it.
void require_engine(const JobSpec& job) {
  if (job.cluster.device != DeviceKind::kCpu) return;
  if (!job.parallel.framework.is_engine()) return;
  Plan pinned;
  pinned.job = job;
  const std::vector<std::string> broken = rules::what_engine_lacks(pinned);
  if (!broken.empty()) {
    throw ConfigError(fmt::format("the engine cannot run this job on device cpu:\n  {}",
                                  fmt::join(broken, "\n  ")));
  }
}

void require_batch_limit(const TrainingSpec& training) {
  if (!training.global_batch) return;
  const int64_t tokens = *training.global_batch * training.sequence_length;
  if (tokens <= training.max_tokens_per_batch) return;
  throw ConfigError(fmt::format(
      "training.global_batch: {} x {} tokens = {} > max_tokens_per_batch {}: write at most {} "
      "samples",
      text::with_commas(*training.global_batch), text::with_commas(training.sequence_length),
      text::with_commas(tokens), text::with_commas(training.max_tokens_per_batch),
      text::with_commas(training.max_tokens_per_batch / training.sequence_length)));
}

choice::JobWithDefaults checked(const JobSpec& job, choice::Strategy strategy) {
  choice::require_legal_pins(job);
  require_batch_limit(job.training);
  choice::JobWithDefaults defaulted = choice::with_defaults(job, strategy);
  require_engine(defaulted.job);
  return defaulted;
}

void keep_closest(std::optional<Candidate>& kept, const Candidate& candidate) {
  if (!kept || candidate.peak_bytes < kept->peak_bytes) kept = candidate;
}

// Adds the seconds of its life.
class Stopwatch {
 public:
  explicit Stopwatch(double& sum) : sum_(sum), begin_(std::chrono::steady_clock::now()) {}
  ~Stopwatch() {
    sum_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& sum_;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace

JobSearch::JobSearch(const JobSpec& job, const SearchOptions& options)
    : job_(job),
      options_(options),
      defaulted_(checked(job, options.strategy)),
      pricer_(defaulted_.job) {}

std::optional<Candidate> JobSearch::best_candidate() {
  if (!find()) return std::nullopt;
  return chosen_->candidate;
}

std::optional<Plan> JobSearch::best_plan() {
  if (!find()) return std::nullopt;
  return std::move(chosen_->plan);
}

std::string JobSearch::problem() {
  if (!closest_) return problem_;
  return fmt::format("{} needs {}", choice::describe(closest_->choice),
                     memory_problem(pricer_.job(), pricer_.detail(closest_->choice)));
}

bool JobSearch::find() {
  if (find_with(prediction::Fit::kFits)) return true;
  const bool may_be_tight = pricer_.has_seen_tight() || pricer_.has_refused();
  return may_be_tight && find_with(prediction::Fit::kTight);
}

bool JobSearch::find_fastest() {
  const SearchSpace space(defaulted_);
  double reach = 0;
  for (;;) {
    {
      const Stopwatch watch(pricer_.statistics().seconds);
      fastest_ = search_fastest(pricer_, space, options_.pareto, reach);
    }
    ExactSearch exact(defaulted_, space, pricer_, fastest_.candidates);
    if (!exact.run()) {
      // What does not fit after all made the search leave out slower layouts: it is done again,
      // with higher peaks.
      if (pricer_.raise_peaks()) continue;
      note_closest();
      return false;
    }
    // Where the closed form is far below the simulation, what it put beyond its reach may be
    // faster.
    const double wanted = (1 - ExactSearch::kLeftOut) * exact.best();
    if (wanted > kRareGain * kBelow * fastest_.candidates.front().seconds_per_token &&
        wanted > reach) {
      reach = wanted;
      continue;
    }
    chosen_ = exact.take_winner();
    rivals_ = exact.take_others();
    return true;
  }
}

bool JobSearch::find_with(prediction::Fit accepted) {
  pricer_.accept(accepted);
  if (!practice()) return find_fastest();
  // A layout that does not fit after all changes the order in which the others come.
  for (;;) {
    {
      const Stopwatch watch(pricer_.statistics().seconds);
      families_ = search_families(defaulted_, pricer_);
    }
    if (choose_by_practice(families_) == nullptr) {
      note_closest();
      return false;
    }
    if (take_practical()) return true;
    if (!pricer_.raise_peaks()) {
      note_closest();
      return false;
    }
  }
}

bool JobSearch::take_practical() {
  const FamilyResult* family = choose_by_practice(families_);
  chosen_ = price_exactly(defaulted_, pricer_, family->best->choice);
  return chosen_.has_value();
}

void JobSearch::note_closest() {
  closest_.reset();
  problem_ = "no sharding is legal with the pinned keys";
  std::string batch;
  bool any = false;
  for (const FamilyResult& family : families_) {
    for (const Candidate& candidate : family.closest) keep_closest(closest_, candidate);
    if (batch.empty()) batch = family.problem;
    any = true;
  }
  for (const SplitResult& split : fastest_.splits) {
    if (split.closest) keep_closest(closest_, *split.closest);
    if (batch.empty()) batch = split.problem;
    any = true;
  }
  if (!any) problem_ = kNoDegree;
  if (!batch.empty()) problem_ = batch;
}

}  // namespace smp::search
