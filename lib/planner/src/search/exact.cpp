#include "search/exact.h"

#include <algorithm>

#include "search/collectives_choice.h"
#include "search/stage_balance.h"
#include "smp/planner/memory/memory_model.h"

namespace smp::search {

namespace {

memory::MemoryEstimate scaled_to(memory::MemoryEstimate memory, double peak_bytes) {
  const double ratio = memory.peak_bytes > 0 ? peak_bytes / memory.peak_bytes : 1;
  for (double& bytes : memory.bytes) bytes *= ratio;
  memory.peak_bytes = peak_bytes;
  memory.allocated_bytes *= ratio;
  memory.reserved_bytes *= ratio;
  return memory;
}

}  // namespace

PricedLayout at_exact_prices(PricedLayout layout, const Candidate& exact) {
  layout.memory = scaled_to(layout.memory, exact.peak_bytes);
  if (layout.time.step_s > 0) {
    const double ratio = exact.step_s / layout.time.step_s;
    for (double& seconds : layout.time.seconds) seconds *= ratio;
    layout.time.step_s = exact.step_s;
    layout.seconds_per_token *= ratio;
    layout.cost_per_token *= ratio;
  }
  return layout;
}

std::optional<ExactLayout> price_exactly(const choice::JobWithDefaults& defaulted, Pricer& pricer,
                                         const choice::LayoutChoice& choice) {
  ++pricer.statistics().exact;
  ExactLayout exact;
  exact.plan = choice::resolve(defaulted.job, choice);
  if (defaulted.job.cluster.device == DeviceKind::kCuda) {
    const CollectivesChoice collectives = choose_collectives(pricer, choice);
    exact.plan.job.parallel.data_collectives = collectives.others;
    exact.plan.job.parallel.collectives = collectives.groups;
  }
  exact.partition_reason = assign_blocks(defaulted, pricer, choice, exact.plan);
  const PricedLayout layout = pricer.detail(choice);

  int64_t peak = 0;
  for (const RankPrediction& rank : exact.plan.predictions.ranks) {
    peak = std::max(peak, rank.peak_bytes);
  }
  const double closed = layout.memory.peak_bytes;
  const double ratio = closed > 0 ? static_cast<double>(peak) / closed : 1;
  const memory::MemoryEstimate memory = scaled_to(layout.memory, static_cast<double>(peak));
  const bool within = peak <= memory::allowed_bytes(defaulted.job.cluster);
  Candidate& candidate = exact.candidate;
  candidate.choice = choice;
  candidate.peak_bytes = memory.peak_bytes;
  candidate.fit = within ? prediction::fit_of(defaulted.job, choice, memory) : prediction::Fit::kNo;
  candidate.step_s = static_cast<double>(exact.plan.predictions.step_ns) * 1e-9;
  candidate.seconds_per_token =
      candidate.step_s / static_cast<double>(exact.plan.predictions.tokens_per_step);
  if (pricer.accepts(candidate.fit)) return exact;
  pricer.refuse(choice, ratio);
  return std::nullopt;
}

}  // namespace smp::search
