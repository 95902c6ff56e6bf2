#include "search/explain.h"

#include <fmt/format.h>

#include <algorithm>

#include "search/exact.h"
#include "search/job_search.h"
#include "search/stage_balance.h"
#include "smp/plan/spec/job_names.h"
#include "smp/planner/choice/choice_words.h"
#include "smp/planner/memory/memory_model.h"

namespace smp::search {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;
constexpr double kGb = 1e9;

}  // namespace

std::optional<Candidate> best_layout(const JobSpec& job, choice::Strategy strategy,
                                     SearchStatistics* statistics) {
  const SearchOptions options{.strategy = strategy};
  JobSearch search(job, options);
  const std::optional<Candidate> best = search.best_candidate();
  if (statistics != nullptr) {
    statistics->evaluations += search.statistics().evaluations;
    statistics->bounds += search.statistics().bounds;
    statistics->simulated += search.statistics().simulated;
    statistics->exact += search.statistics().exact;
  }
  return best;
}

std::vector<PricedLayout> simulated_front(const choice::JobWithDefaults& defaulted, Pricer& pricer,
                                          const std::vector<Candidate>& points) {
  std::vector<PricedLayout> front;
  for (Candidate point : points) {
    const PricedLayout closed = pricer.detail(point.choice);
    if (is_simulated(defaulted.job, point.choice)) {
      point.step_s = simulated_step_s(defaulted, pricer, point.choice);
    }
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

Bottleneck bottleneck_of(const ClusterSpec& cluster, const PricedLayout& layout) {
  Bottleneck bottleneck;
  bottleneck.peak_bytes = layout.memory.peak_bytes;
  if (cluster.memory_per_process_bytes > 0) {
    bottleneck.allowed_bytes = static_cast<double>(memory::allowed_bytes(cluster));
  }
  for (int i = 0; i < memory::kTerms; ++i) {
    const memory::Term term = static_cast<memory::Term>(i);
    if (layout.memory[term] <= bottleneck.memory_term_bytes) continue;
    bottleneck.memory_term = term;
    bottleneck.memory_term_bytes = layout.memory[term];
  }
  bottleneck.step_s = layout.time.step_s;
  for (int i = 0; i < time::kTimeParts; ++i) {
    const time::TimePart part = static_cast<time::TimePart>(i);
    if (layout.time[part] <= bottleneck.time_part_s) continue;
    bottleneck.time_part = part;
    bottleneck.time_part_s = layout.time[part];
  }
  return bottleneck;
}

std::vector<Sensitivity> sensitivities_of(const JobSpec& job, Pricer& pricer,
                                          const PricedLayout& chosen) {
  std::vector<Sensitivity> sensitivities;
  const double before = chosen.time.step_s;
  if (before == 0) return sensitivities;
  const double closed = pricer.detail(chosen.choice).time.step_s;
  if (job.cluster.memory_per_process_bytes > 0) {
    JobSpec larger = job;
    larger.cluster.memory_per_process_bytes += kGiB;
    if (const auto best = best_layout(larger, choice::Strategy::kFastest, &pricer.statistics())) {
      const bool same = best->choice == chosen.choice;
      // Step times of unequal batches are compared at the winner's batch.
      const double after =
          same ? before : before * best->seconds_per_token / chosen.seconds_per_token;
      sensitivities.push_back({"1 GiB of memory a process", before, std::min(before, after),
                               same || after >= before ? "" : choice::describe(best->choice)});
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
    if (after < before) sensitivities.push_back({link.what, before, after, ""});
  }
  return sensitivities;
}

std::optional<StrategyDifference> difference_of(const JobSpec& job, choice::Strategy other,
                                                const PricedLayout& chosen) {
  StrategyDifference difference;
  difference.other = other;
  difference.winner_seconds_per_token = chosen.seconds_per_token;
  const std::optional<Candidate> best = best_layout(job, other);
  if (!best) return difference;
  const choice::LayoutChoice& theirs = best->choice;
  const choice::LayoutChoice& ours = chosen.choice;
  if (theirs == ours) return std::nullopt;
  difference.layout = choice::describe(theirs);
  difference.step_s = best->step_s;
  difference.seconds_per_token = best->seconds_per_token;
  const auto compare = [&](const char* name, const auto& a, const auto& b) {
    if (a != b) difference.differences.push_back(fmt::format("{} {} instead of {}", name, a, b));
  };
  compare("tensor", ours.tensor, theirs.tensor);
  compare("pipeline", ours.pipeline, theirs.pipeline);
  if (ours.pipeline > 1 && theirs.pipeline > 1) {
    compare("schedule", choice::schedule_words(ours), choice::schedule_words(theirs));
  }
  compare("context", ours.context, theirs.context);
  compare("heads exchanged by", ours.exchange, theirs.exchange);
  compare("expert", ours.expert, theirs.expert);
  compare("shard degree", ours.shard, theirs.shard);
  compare("sharding", name_of(ours.sharding), name_of(theirs.sharding));
  compare("micro batch", ours.micro_batch, theirs.micro_batch);
  compare("microbatches", ours.microbatches, theirs.microbatches);
  if (choice::recompute_words(ours) != choice::recompute_words(theirs)) {
    difference.differences.push_back(fmt::format("{} instead of {}", choice::recompute_words(ours),
                                                 choice::recompute_words(theirs)));
  }
  compare("sequence parallel", ours.sequence_parallel, theirs.sequence_parallel);
  compare("activations offloaded", ours.offload_activations, theirs.offload_activations);
  compare("optimizer offloaded", ours.offload_optimizer, theirs.offload_optimizer);
  compare("parameters offloaded", ours.offload_parameters, theirs.offload_parameters);
  return difference;
}

}  // namespace smp::search
