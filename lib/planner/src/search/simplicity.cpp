#include "search/simplicity.h"

#include <algorithm>
#include <bit>

namespace smp::search {
namespace {

// Doublings, rounded up.
int doublings(int64_t degree) {
  return static_cast<int>(std::bit_width(static_cast<uint64_t>(degree - 1)));
}

int schedule_points(PipelineKind kind) {
  switch (kind) {
    case PipelineKind::kInterleaved: return 0;
    case PipelineKind::kSimple: return 1;
    case PipelineKind::kVirtual: return 4;
    case PipelineKind::kZbH1:
    case PipelineKind::kZbV: return 6;
  }
  return 0;
}

int sharding_points(Sharding sharding) {
  return sharding == Sharding::kNone ? 0 : 1 + static_cast<int>(sharding);
}

int recompute_points(const choice::LayoutChoice& choice) {
  if (choice.recompute == Recompute::kNone) return 0;
  if (choice.recompute == Recompute::kSelective) return 1;
  return choice.recompute_layers < 0 ? 2 : 3;
}

}  // namespace

bool is_better(const Candidate& a, const Candidate& b) {
  if (a.seconds_per_token != b.seconds_per_token) return a.seconds_per_token < b.seconds_per_token;
  if (a.choice.sequence_parallel != b.choice.sequence_parallel) return b.choice.sequence_parallel;
  return a.peak_bytes < b.peak_bytes;
}

int complexity(const choice::LayoutChoice& choice) {
  int points =
      8 * (doublings(choice.pipeline) + doublings(choice.tensor) + doublings(choice.context)) +
      4 * doublings(choice.expert) + doublings(choice.shard) + doublings(choice.microbatches) +
      sharding_points(choice.sharding) + recompute_points(choice) +
      schedule_points(choice.schedule);
  if (choice.virtual_stages > 2) points += doublings(choice.virtual_stages) - 1;
  if (choice.offload_activations) points += 6;
  if (choice.offload_optimizer) points += 8;
  if (choice.offload_parameters) points += 10;
  if (!choice.has_even_stages()) points += 3;
  if (is_spread(choice.placement)) points += 2;
  return points;
}

void SimplicityFront::offer(const Candidate& candidate) {
  // Worse than something no more complex: the usual case, seen without searching.
  const Step step{complexity(candidate.choice), candidate};
  const auto after =
      std::upper_bound(steps_.begin(), steps_.end(), step,
                       [](const Step& a, const Step& b) { return a.complexity < b.complexity; });
  if (after != steps_.begin() && !is_better(candidate, (after - 1)->candidate)) return;
  auto first = after;
  if (first != steps_.begin() && (first - 1)->complexity == step.complexity) --first;
  auto last = after;
  while (last != steps_.end() && !is_better(last->candidate, candidate)) ++last;
  const auto place = steps_.erase(first, last);
  steps_.insert(place, step);
}

const Candidate* SimplicityFront::choose(double noise) const {
  if (steps_.empty()) return nullptr;
  const double limit = noise * steps_.back().candidate.seconds_per_token;
  for (const Step& step : steps_) {
    if (step.candidate.seconds_per_token <= limit) return &step.candidate;
  }
  return &steps_.back().candidate;
}

}  // namespace smp::search
