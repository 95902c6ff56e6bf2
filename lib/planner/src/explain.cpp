#include "explain.h"

#include <fmt/format.h>

#include <algorithm>

#include "exact.h"
#include "job_search.h"
#include "smp/plan/job_names.h"
#include "smp/planner/choice_words.h"
#include "smp/planner/memory_model.h"
#include "stage_balance.h"

namespace smp {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;
constexpr double kGb = 1e9;

}  // namespace

std::optional<Candidate> best_layout(const JobSpec& job, Strategy strategy, SearchEffort* effort) {
  const SearchOptions options{.strategy = strategy};
  JobSearch search(job, options);
  const std::optional<Candidate> best = search.best_candidate();
  if (effort != nullptr) {
    effort->evaluations += search.effort().evaluations;
    effort->bounds += search.effort().bounds;
    effort->simulated += search.effort().simulated;
    effort->exact += search.effort().exact;
  }
  return best;
}

std::vector<PricedLayout> simulated_front(const SettledJob& settled, Pricer& pricer,
                                          const std::vector<Candidate>& points) {
  std::vector<PricedLayout> front;
  for (Candidate point : points) {
    const PricedLayout closed = pricer.detail(point.choice);
    if (point.choice.pipeline > 1) point.step_s = simulated_step_s(settled, point.choice);
    front.push_back(at_exact_prices(closed, point));
  }
  std::stable_sort(front.begin(), front.end(), [](const PricedLayout& a, const PricedLayout& b) {
    return a.seconds_per_token < b.seconds_per_token;
  });
  std::vector<PricedLayout> kept;
  for (PricedLayout& point : front) {
    if (!kept.empty() && point.memory.peak_bytes >= kept.back().memory.peak_bytes) continue;
    kept.push_back(std::move(point));
  }
  return kept;
}

Bottleneck binding_of(const ClusterSpec& cluster, const PricedLayout& layout) {
  Bottleneck binding;
  binding.peak_bytes = layout.memory.peak_bytes;
  if (cluster.memory_per_process_bytes > 0) {
    binding.allowed_bytes = static_cast<double>(allowed_bytes(cluster));
  }
  for (int i = 0; i < kTerms; ++i) {
    const Term term = static_cast<Term>(i);
    if (layout.memory[term] <= binding.memory_term_bytes) continue;
    binding.memory_term = term;
    binding.memory_term_bytes = layout.memory[term];
  }
  binding.step_s = layout.time.step_s;
  for (int i = 0; i < kTimeParts; ++i) {
    const TimePart part = static_cast<TimePart>(i);
    if (layout.time[part] <= binding.time_part_s) continue;
    binding.time_part = part;
    binding.time_part_s = layout.time[part];
  }
  return binding;
}

std::vector<Purchase> purchases_of(const JobSpec& job, Pricer& pricer, const PricedLayout& chosen) {
  std::vector<Purchase> purchases;
  const double before = chosen.time.step_s;
  if (before == 0) return purchases;
  const double closed = pricer.detail(chosen.choice).time.step_s;
  if (job.cluster.memory_per_process_bytes > 0) {
    JobSpec larger = job;
    larger.cluster.memory_per_process_bytes += kGiB;
    if (const auto best = best_layout(larger, Strategy::kFastest, &pricer.effort())) {
      const bool same = best->choice == chosen.choice;
      // Step times of unequal batches are compared at the winner's batch.
      const double after =
          same ? before : before * best->seconds_per_token / chosen.seconds_per_token;
      purchases.push_back({"1 GiB of memory a process", before, std::min(before, after),
                           same || after >= before ? "" : describe(best->choice)});
    }
  }
  const struct {
    const char* what;
    double ClusterSpec::*rate;
  } links[] = {
      {"1 GB/s inside a host", &ClusterSpec::intra_host_bytes_per_s},
      {"1 GB/s between hosts", &ClusterSpec::inter_host_bytes_per_s},
      {"1 GB/s to host memory", &ClusterSpec::host_link_bytes_per_s},
      {"1 GB/s of memory bandwidth", &ClusterSpec::memory_bytes_per_s},
  };
  for (const auto& link : links) {
    if (pricer.job().cluster.*link.rate == 0) continue;
    JobSpec faster = pricer.job();
    faster.cluster.*link.rate += kGb;
    // As much of the exact price as of the closed form.
    const double after = before * Pricer(faster).detail(chosen.choice).time.step_s / closed;
    if (after < before) purchases.push_back({link.what, before, after, ""});
  }
  return purchases;
}

std::optional<StrategyDifference> difference_of(const JobSpec& job, Strategy other,
                                                const PricedLayout& chosen) {
  StrategyDifference difference;
  difference.other = other;
  difference.winner_seconds_per_token = chosen.seconds_per_token;
  const std::optional<Candidate> best = best_layout(job, other);
  if (!best) return difference;
  const LayoutChoice& theirs = best->choice;
  const LayoutChoice& ours = chosen.choice;
  if (theirs == ours) return std::nullopt;
  difference.layout = describe(theirs);
  difference.step_s = best->step_s;
  difference.seconds_per_token = best->seconds_per_token;
  const auto compare = [&](const char* name, const auto& a, const auto& b) {
    if (a != b) difference.differences.push_back(fmt::format("{} {} instead of {}", name, a, b));
  };
  compare("tensor", ours.tensor, theirs.tensor);
  compare("pipeline", ours.pipeline, theirs.pipeline);
  if (ours.pipeline > 1 && theirs.pipeline > 1) {
    compare("schedule", schedule_words(ours), schedule_words(theirs));
  }
  compare("context", ours.context, theirs.context);
  compare("expert", ours.expert, theirs.expert);
  compare("shard degree", ours.shard, theirs.shard);
  compare("sharding", name_of(ours.sharding), name_of(theirs.sharding));
  compare("micro batch", ours.micro_batch, theirs.micro_batch);
  compare("microbatches", ours.microbatches, theirs.microbatches);
  if (recompute_words(ours) != recompute_words(theirs)) {
    difference.differences.push_back(
        fmt::format("{} instead of {}", recompute_words(ours), recompute_words(theirs)));
  }
  compare("sequence parallel", ours.sequence_parallel, theirs.sequence_parallel);
  compare("activations offloaded", ours.offload_activations, theirs.offload_activations);
  compare("optimizer offloaded", ours.offload_optimizer, theirs.offload_optimizer);
  compare("parameters offloaded", ours.offload_parameters, theirs.offload_parameters);
  return difference;
}

}  // namespace smp
