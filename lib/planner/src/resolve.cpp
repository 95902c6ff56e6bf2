#include "resolve.h"

#include <fmt/format.h>

#include "smp/plan/job_names.h"
#include "smp/plan/layers.h"
#include "smp/planner/legality.h"
#include "smp/planner/units.h"

namespace smp {
namespace {

std::string accelerator_name(const ClusterSpec& cluster) {
  return cluster.accelerator.empty() ? "the accelerator" : cluster.accelerator;
}

void settle_precision(SettledJob& settled) {
  const ClusterSpec& cluster = settled.job.cluster;
  auto& precision = settled.job.training.precision;
  const auto say = [&](std::string why) { settled.reasons.push_back(std::move(why)); };
  if (precision) return say(fmt::format("precision {}: pinned", name_of(*precision)));
  if (cluster.device == DeviceKind::kCpu) {
    precision = Precision::kFp32;
    return say("precision fp32: what the engine runs on CPUs");
  }
  if (cluster.has_bf16) {
    precision = Precision::kBf16;
    return say(fmt::format("precision bf16: {} has it, and it needs no loss scaling",
                           accelerator_name(cluster)));
  }
  if (cluster.has_fp16) {
    precision = Precision::kFp16;
    return say(
        fmt::format("precision fp16 with loss scaling: {} has no bf16", accelerator_name(cluster)));
  }
  precision = Precision::kFp32;
  say(fmt::format("precision fp32: {} has neither bf16 nor fp16", accelerator_name(cluster)));
}

void settle_checkpointing(SettledJob& settled) {
  auto& checkpointing = settled.job.parallel.activation_checkpointing;
  const bool cpu = settled.job.cluster.device == DeviceKind::kCpu;
  const bool pinned = checkpointing.has_value();
  // Offloading moves what checkpointing keeps.
  const bool offloads = settled.job.parallel.offload_activations == true;
  if (!pinned) {
    checkpointing = offloads || (!cpu && settled.parameters >= kCheckpointedFromParameters);
  }
  if (!*checkpointing && (cpu || !pinned)) return;  // nothing that a reader would ask about
  settled.reasons.push_back(fmt::format(
      "activation checkpointing {}: {}", *checkpointing ? "on" : "off",
      pinned ? "pinned"
      : offloads
          ? "offload_activations moves what it keeps"
          : fmt::format("{} parameters, from {} on a layer's insides cost more memory than its "
                        "recomputing costs time",
                        human_count(static_cast<double>(settled.parameters)),
                        human_count(static_cast<double>(kCheckpointedFromParameters)))));
}

void settle_initialisation(SettledJob& settled) {
  auto& delayed = settled.job.parallel.delayed_parameter_initialization;
  if (delayed) return;
  const bool small = settled.parameters <= kDelayedInitAboveParameters;
  delayed = engine_draws(settled.job) || !small;
  if (!small) {
    settled.reasons.push_back(fmt::format(
        "delayed parameter initialisation: {} parameters, above {} no host holds a whole copy",
        with_commas(settled.parameters), with_commas(kDelayedInitAboveParameters)));
  }
}

}  // namespace

SettledJob settle(const JobSpec& job, Strategy strategy) {
  SettledJob settled{job, {}, parameter_count(job.model), false};
  settle_precision(settled);
  if (strategy == Strategy::kBestPractice) {
    settle_checkpointing(settled);
    ParallelSpec& parallel = settled.job.parallel;
    if (!parallel.pipeline) parallel.pipeline = PipelineKind::kInterleaved;
  }
  settled.balances_stages = strategy == Strategy::kFastest;
  settle_initialisation(settled);
  return settled;
}

}  // namespace smp
