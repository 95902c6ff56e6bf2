#include <fmt/format.h>

#include <algorithm>

#include "choice/resolve.h"
#include "smp/plan/model/layers.h"
#include "smp/plan/model/operators.h"
#include "smp/plan/model/parameter_counts.h"
#include "smp/plan/model/router_loads.h"
#include "smp/plan/rules/degree_rules.h"
#include "smp/plan/spec/job_names.h"
#include "smp/plan/text/units.h"
#include "smp/planner/choice/legality.h"

namespace smp::choice {
namespace {

std::string accelerator_name(const ClusterSpec& cluster) {
  return cluster.accelerator.empty() ? "the accelerator" : cluster.accelerator;
}

// Forward and backward. Of a list each matrix is applied as often as its output has places.
double flops_of_token(const JobSpec& job) {
  if (!model::is_list(job.model)) return 6 * static_cast<double>(model::parameter_count(job.model));
  SampleShape shape = model::input_of(job.model);
  double flops = 0;
  for (const OperatorSpec& spec : job.model.operators) {
    const model::OperatorRules& rules = model::rules_of(spec.kind);
    const SampleShape out = rules.output(spec, shape);
    if (rules.has_matrix) {
      const model::ParameterSpec matrix = rules.parameters(spec, shape).front();
      flops += 6 * static_cast<double>(matrix.cols) * static_cast<double>(model::elements_of(out));
    }
    shape = out;
  }
  return std::max(1.0, flops);
}

void default_precision(JobWithDefaults& defaulted) {
  const ClusterSpec& cluster = defaulted.job.cluster;
  auto& precision = defaulted.job.training.precision;
  const auto say = [&](std::string why) { defaulted.reasons.push_back(std::move(why)); };
  if (precision) return say(fmt::format("precision {}: pinned", name_of(*precision)));
  if (cluster.device == DeviceKind::kCpu) {
    precision = Precision::kFp32;
    return say("precision fp32: the engine's default on CPUs");
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

void default_checkpointing(JobWithDefaults& defaulted) {
  auto& checkpointing = defaulted.job.parallel.activation_checkpointing;
  const bool cpu = defaulted.job.cluster.device == DeviceKind::kCpu;
  const bool pinned = checkpointing.has_value();
  // Offloading moves what checkpointing keeps.
  const bool offloads = defaulted.job.parallel.offload_activations == true;
  if (!pinned) {
    checkpointing = offloads || (!cpu && defaulted.parameters >= kCheckpointedFromParameters);
  }
  if (!*checkpointing && (cpu || !pinned)) return;  // nothing that a reader would ask about
  defaulted.reasons.push_back(fmt::format(
      "activation checkpointing {}: {}", *checkpointing ? "on" : "off",
      pinned ? "pinned"
      : offloads
          ? "offload_activations moves the saved inputs"
          : fmt::format("{} parameters; from {}, the activations inside a layer cost more memory "
                        "than recomputing them costs time",
                        text::human_count(static_cast<double>(defaulted.parameters)),
                        text::human_count(static_cast<double>(kCheckpointedFromParameters)))));
}

void default_initialisation(JobWithDefaults& defaulted) {
  auto& delayed = defaulted.job.parallel.delayed_parameter_initialization;
  if (delayed) return;
  const bool small = defaulted.parameters <= kDelayedInitAboveParameters;
  delayed = engine_draws(defaulted.job) || !small;
  if (!small) {
    defaulted.reasons.push_back(fmt::format(
        "delayed parameter initialisation: {} parameters; above {}, a host cannot hold a whole "
        "copy",
        text::with_commas(defaulted.parameters), text::with_commas(kDelayedInitAboveParameters)));
  }
}

// Up to the usual limit of tokens a step takes CPUs minutes: where nobody says how large the batch
// is, it is as large as their matmuls do in seconds.
void default_batch(JobWithDefaults& defaulted) {
  constexpr double kStepS = 5;
  const int64_t usual = TrainingSpec().max_tokens_per_batch;
  TrainingSpec& training = defaulted.job.training;
  const ClusterSpec& cluster = defaulted.job.cluster;
  const bool said = training.global_batch || training.micro_batch || training.microbatches ||
                    training.batch_ramp_start > 0 || training.max_tokens_per_batch != usual;
  if (cluster.device != DeviceKind::kCpu || cluster.fp32_flops_per_s <= 0 || said) return;
  const double rate = cluster.fp32_flops_per_s * cluster.matmul_efficiency *
                      static_cast<double>(rules::world_size(cluster));
  const double tokens = kStepS * rate / flops_of_token(defaulted.job);
  // A power of two, and a sample for each rank at least.
  const int64_t least = rules::world_size(cluster) * training.sequence_length;
  int64_t limit = 1;
  while (limit < usual && 2.0 * static_cast<double>(limit) <= tokens) limit *= 2;
  limit = std::max(limit, least);
  if (limit >= usual) return;
  training.max_tokens_per_batch = limit;
  defaulted.reasons.push_back(fmt::format(
      "batch of at most {} tokens: about {} of compute a step on these CPUs; training.global_batch "
      "or max_tokens_per_batch changes it",
      text::with_commas(limit),
      text::human_time(static_cast<double>(limit) * flops_of_token(defaulted.job) / rate)));
}

// All choices of a step are counted before its first backward.
void default_schedule(JobWithDefaults& defaulted) {
  const JobSpec& job = defaulted.job;
  const bool balances_batch =
      job.parallel.framework.is_engine() && model::router_loads(job.model) > 0;
  if (job.parallel.pipeline || !balances_batch) return;
  defaulted.job.parallel.pipeline = PipelineKind::kSimple;
  defaulted.reasons.push_back(
      "pipeline simple: router_balance_over batch counts all forwards before the first backward");
}

}  // namespace

JobWithDefaults with_defaults(const JobSpec& job, Strategy strategy) {
  JobWithDefaults defaulted{job, {}, model::parameter_count(job.model), false};
  default_precision(defaulted);
  default_schedule(defaulted);
  if (strategy == Strategy::kBestPractice) {
    default_checkpointing(defaulted);
    ParallelSpec& parallel = defaulted.job.parallel;
    if (!parallel.pipeline) parallel.pipeline = PipelineKind::kInterleaved;
  }
  defaulted.balances_stages = strategy == Strategy::kFastest;
  default_initialisation(defaulted);
  default_batch(defaulted);
  return defaulted;
}

}  // namespace smp::choice
