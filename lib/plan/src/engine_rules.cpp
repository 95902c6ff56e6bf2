#include "smp/plan/engine_rules.h"

#include "smp/plan/collective.h"
#include "smp/plan/plan.h"
#include "smp/plan/rank_groups.h"

namespace smp {
namespace {

static_assert(kMaxRanks == 256 && kMaxGroups == 256);  // the texts below say so

// Groups of ranks that the whole job opens; 0 while the degrees are beyond one host's ranks anyway.
int64_t groups_of(const Plan& plan) {
  int64_t groups = 0;
  if (plan.degrees.world() > kMaxRanks) return groups;
  for (int64_t rank = 0; rank < plan.degrees.world(); ++rank) {
    for (const RankGroup& group : rank_groups(plan, rank)) groups += group.ranks.front() == rank;
  }
  return groups;
}

struct Rule {
  bool (*broken)(const Plan&);
  const char* text;
};

const Rule kRules[] = {
    {[](const Plan& plan) { return plan.job.cluster.device == DeviceKind::kCuda; },
     "cluster.device: cuda (the engine runs on cpu)"},
    {[](const Plan& plan) { return plan.job.training.precision == Precision::kBf16; },
     "training.precision: bf16 (the engine runs fp32 and fp64)"},
    {[](const Plan& plan) { return plan.job.training.precision == Precision::kFp16; },
     "training.precision: fp16 (the engine runs fp32 and fp64)"},
    {[](const Plan& plan) { return plan.job.parallel.sharding == Sharding::kGradients; },
     "parallel.sharding: gradients (the engine runs none and optimizer_state)"},
    {[](const Plan& plan) { return plan.job.parallel.sharding == Sharding::kParameters; },
     "parallel.sharding: parameters (the engine runs none and optimizer_state)"},
    {[](const Plan& plan) { return plan.job.parallel.activation_checkpointing.value_or(false); },
     "parallel.activation_checkpointing: true (the engine runs without it)"},
    {[](const Plan& plan) { return plan.job.parallel.offload_activations.value_or(false); },
     "parallel.offload_activations: true (the engine runs without it)"},
    {[](const Plan& plan) { return plan.job.cluster.hosts > 1; },
     "cluster.hosts: more than one (the engine runs on this host)"},
    {[](const Plan& plan) { return plan.job.cluster.processes_per_host > kMaxRanks; },
     "cluster.processes_per_host: more than 256 (the engine runs up to 256 ranks on a host)"},
    {[](const Plan& plan) { return groups_of(plan) > kMaxGroups; },
     "parallel degrees with more than 256 groups of ranks (the engine opens up to 256: give one "
     "degree more of the ranks, or use fewer ranks)"},
};

}  // namespace

std::vector<std::string> what_engine_cannot_run(const Plan& plan) {
  std::vector<std::string> found;
  for (const Rule& rule : kRules) {
    if (rule.broken(plan)) found.emplace_back(rule.text);
  }
  return found;
}

}  // namespace smp
