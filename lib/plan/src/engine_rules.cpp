#include "smp/plan/engine_rules.h"

#include "smp/plan/plan.h"

namespace smp {
namespace {

struct Rule {
  bool (*broken)(const JobSpec&);
  const char* text;
};

const Rule kRules[] = {
    {[](const JobSpec& job) { return job.cluster.device == DeviceKind::kCuda; },
     "cluster.device: cuda (the engine runs on cpu)"},
    {[](const JobSpec& job) { return job.training.precision == Precision::kBf16; },
     "training.precision: bf16 (the engine runs fp32 and fp64)"},
    {[](const JobSpec& job) { return job.training.precision == Precision::kFp16; },
     "training.precision: fp16 (the engine runs fp32 and fp64)"},
    {[](const JobSpec& job) { return job.parallel.sharding == Sharding::kGradients; },
     "parallel.sharding: gradients (the engine runs none and optimizer_state)"},
    {[](const JobSpec& job) { return job.parallel.sharding == Sharding::kParameters; },
     "parallel.sharding: parameters (the engine runs none and optimizer_state)"},
    {[](const JobSpec& job) { return job.parallel.activation_checkpointing.value_or(false); },
     "parallel.activation_checkpointing: true (the engine runs without it)"},
    {[](const JobSpec& job) { return job.parallel.offload_activations.value_or(false); },
     "parallel.offload_activations: true (the engine runs without it)"},
    {[](const JobSpec& job) {
       return job.parallel.delayed_parameter_initialization.value_or(false);
     },
     "parallel.delayed_parameter_initialization: true (the engine runs without it)"},
    {[](const JobSpec& job) { return job.cluster.hosts > 1; },
     "cluster.hosts: more than one (the engine runs on this host)"},
};

}  // namespace

std::vector<std::string> what_engine_cannot_run(const Plan& plan) {
  std::vector<std::string> found;
  for (const Rule& rule : kRules) {
    if (rule.broken(plan.job)) found.emplace_back(rule.text);
  }
  return found;
}

}  // namespace smp
