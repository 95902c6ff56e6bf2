#include "choice/forbid.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "smp/plan/base/check.h"
#include "smp/plan/base/errors.h"

namespace smp::choice {
namespace {

using Value = int64_t (*)(const LayoutChoice&);

struct Key {
  std::string_view name;
  Value value;
};

using C = const LayoutChoice&;
constexpr Key kKeys[] = {
    {"pipeline_parallel_degree", [](C c) { return int64_t{c.pipeline}; }},
    {"tensor_parallel_degree", [](C c) { return int64_t{c.tensor}; }},
    {"context_parallel_degree", [](C c) { return int64_t{c.context}; }},
    {"expert_parallel_degree", [](C c) { return int64_t{c.expert}; }},
    {"expert_tensor_degree", [](C c) { return int64_t{c.expert_tensor}; }},
    {"sharded_data_parallel_degree", [](C c) { return int64_t{c.shard}; }},
    {"virtual_pipeline_degree", [](C c) { return int64_t{c.virtual_stages}; }},
    {"pipeline", [](C c) { return static_cast<int64_t>(c.schedule); }},
    {"sharding", [](C c) { return static_cast<int64_t>(c.sharding); }},
    {"sequence_parallel", [](C c) { return int64_t{c.sequence_parallel}; }},
    {"placement_strategy", [](C c) { return int64_t{is_spread(c.placement)}; }},
    {"recompute", [](C c) { return static_cast<int64_t>(c.recompute); }},
    {"recompute_layers", [](C c) { return int64_t{c.recompute_layers}; }},
    {"offload_activations", [](C c) { return int64_t{c.offload_activations}; }},
    {"offload_optimizer", [](C c) { return int64_t{c.offload_optimizer}; }},
    {"offload_parameters", [](C c) { return int64_t{c.offload_parameters}; }},
    {"micro_batch", [](C c) { return int64_t{c.micro_batch}; }},
    {"microbatches", [](C c) { return int64_t{c.microbatches}; }},
    {"precision", [](C c) { return static_cast<int64_t>(c.precision); }},
};

Value value_of(std::string_view name) {
  const auto* found = std::find_if(std::begin(kKeys), std::end(kKeys),
                                   [&](const Key& key) { return key.name == name; });
  SMP_CHECK(found != std::end(kKeys));
  return found->value;
}

}  // namespace

Forbidden::Forbidden(const std::vector<std::string>& entries) {
  for (const std::string& entry : entries) {
    jobfile::ForbidReading reading = jobfile::read_forbid(entry);
    if (!reading.problem.empty()) {
      throw ConfigError(
          fmt::format("parallel.forbid: item {} {}", entries_.size() + 1, reading.problem));
    }
    std::vector<Condition> conditions;
    for (jobfile::ForbiddenValue& comparison : reading.comparisons) {
      const Value value = value_of(comparison.key);
      conditions.push_back({value, std::move(comparison)});
    }
    entries_.push_back(std::move(conditions));
  }
}

bool Forbidden::matches(const LayoutChoice& choice) const {
  const auto meets = [&](const Condition& condition) {
    return condition.comparison.holds(condition.value(choice));
  };
  return std::any_of(entries_.begin(), entries_.end(), [&](const auto& conditions) {
    return std::all_of(conditions.begin(), conditions.end(), meets);
  });
}

}  // namespace smp::choice
