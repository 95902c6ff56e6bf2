#include "choice/forbid.h"

#include <fmt/format.h>

#include <algorithm>

#include "smp/plan/base/check.h"
#include "smp/plan/base/errors.h"

namespace smp::choice {
namespace {

int64_t value_of(jobfile::LayoutKey key, const LayoutChoice& choice) {
  using Key = jobfile::LayoutKey;
  switch (key) {
    case Key::kPipelineDegree: return choice.pipeline;
    case Key::kTensorDegree: return choice.tensor;
    case Key::kContextDegree: return choice.context;
    case Key::kExchangeDegree: return choice.exchange;
    case Key::kExpertDegree: return choice.expert;
    case Key::kExpertTensorDegree: return choice.expert_tensor;
    case Key::kShardDegree: return choice.shard;
    case Key::kVirtualDegree: return choice.virtual_stages;
    case Key::kPipeline: return static_cast<int64_t>(choice.schedule);
    case Key::kSharding: return static_cast<int64_t>(choice.sharding);
    case Key::kSequenceParallel: return int64_t{choice.sequence_parallel};
    case Key::kPlacement: return int64_t{is_spread(choice.placement)};
    case Key::kRecompute: return static_cast<int64_t>(choice.recompute);
    case Key::kRecomputeLayers: return choice.recompute_layers;
    case Key::kOffloadActivations: return int64_t{choice.offload_activations};
    case Key::kOffloadOptimizer: return int64_t{choice.offload_optimizer};
    case Key::kOffloadParameters: return int64_t{choice.offload_parameters};
    case Key::kMicroBatch: return choice.micro_batch;
    case Key::kMicrobatches: return choice.microbatches;
    case Key::kPrecision: return static_cast<int64_t>(choice.precision);
  }
  check_failed(__FILE__, __LINE__, "unknown layout key");
}

}  // namespace

Forbidden::Forbidden(const std::vector<std::string>& entries) {
  for (const std::string& entry : entries) {
    jobfile::ForbidReading reading = jobfile::read_forbid(entry);
    if (!reading.problem.empty()) {
      throw ConfigError(
          fmt::format("parallel.forbid: item {} {}", entries_.size() + 1, reading.problem));
    }
    entries_.push_back(std::move(reading.comparisons));
  }
}

bool Forbidden::matches(const LayoutChoice& choice) const {
  const auto meets = [&](const jobfile::ForbiddenValue& comparison) {
    return comparison.holds(value_of(comparison.key, choice));
  };
  return std::any_of(entries_.begin(), entries_.end(), [&](const auto& comparisons) {
    return std::all_of(comparisons.begin(), comparisons.end(), meets);
  });
}

}  // namespace smp::choice
