#include <fmt/format.h>

#include "planfile/plan_format.h"
#include "smp/plan/base/check.h"
#include "smp/plan/base/fnv1a.h"
#include "smp/plan/jobfile/job_format.h"
#include "smp/plan/planfile/plan_file.h"
#include "text/yaml_writer.h"

namespace smp::planfile {
namespace {

std::string predictions_text(const Predictions& predictions) {
  std::string out = fmt::format(
      "predictions:\n  step_ns: {}\n  tokens_per_step: {}\n  bubble_ppm: {}\n  ranks:{}\n",
      predictions.step_ns, predictions.tokens_per_step, predictions.bubble_ppm,
      predictions.ranks.empty() ? " []" : "");
  for (const RankPrediction& rank : predictions.ranks) {
    out += fmt::format(
        "    - stage: {}\n      tensor: {}\n      peak_bytes: {}\n      peak_phase: {}\n",
        rank.stage, rank.tensor, rank.peak_bytes, text::yaml_text(rank.peak_phase));
    // Most plans offload nothing.
    if (rank.host_bytes > 0) out += fmt::format("      host_bytes: {}\n", rank.host_bytes);
    out += fmt::format("      busy_ns: {}\n      terms:{}\n", rank.busy_ns,
                       rank.terms.empty() ? " []" : "");
    for (const MemoryTerm& term : rank.terms) {
      out += fmt::format(
          "        - name: {}\n          category: {}\n          bytes: {}\n"
          "          formula: {}\n          source: {}\n",
          text::yaml_text(term.name), name_of(term.category), term.bytes,
          text::yaml_text(term.formula), text::yaml_text(term.source));
    }
  }
  return out;
}

std::string body_of(const Plan& plan) {
  std::string out = "job:\n" + jobfile::write_job_yaml(plan.job, 2);
  const mesh::Degrees& degrees = plan.degrees;
  out += fmt::format(
      "degrees:\n  pipeline: {}\n  tensor: {}\n  shard: {}\n  replica: {}\n  context: {}\n"
      "  exchange: {}\n  expert: {}\n  expert_tensor: {}\n",
      degrees.pipeline, degrees.tensor, degrees.shard, degrees.replica, degrees.context,
      degrees.exchange, degrees.expert, degrees.expert_tensor);
  out += plan.reasons.empty() ? "reasons: []\n" : "reasons:\n";
  for (const std::string& reason : plan.reasons) out += "  - " + text::yaml_text(reason) + "\n";
  return out + predictions_text(plan.predictions);
}

}  // namespace

std::string plan_hash(std::string_view body) { return fmt::format("fnv1a-{:016x}", fnv1a(body)); }

std::vector<std::string> open_keys(const JobSpec& job) {
  std::vector<std::string> keys;
  const auto check = [&](const auto& value, const char* path) {
    if (!value.has_value()) keys.emplace_back(path);
  };
  check(job.training.micro_batch, "training.micro_batch");
  check(job.training.microbatches, "training.microbatches");
  check(job.training.global_batch, "training.global_batch");
  check(job.training.precision, "training.precision");
  const ParallelSpec& parallel = job.parallel;
  check(parallel.pipeline_parallel_degree, "parallel.pipeline_parallel_degree");
  check(parallel.tensor_parallel_degree, "parallel.tensor_parallel_degree");
  check(parallel.sharded_data_parallel_degree, "parallel.sharded_data_parallel_degree");
  check(parallel.shard_optimizer_state, "parallel.shard_optimizer_state");
  check(parallel.sharding, "parallel.sharding");
  check(parallel.pipeline, "parallel.pipeline");
  check(parallel.active_microbatches, "parallel.active_microbatches");
  check(parallel.virtual_pipeline_degree, "parallel.virtual_pipeline_degree");
  check(parallel.context_parallel_degree, "parallel.context_parallel_degree");
  if (parallel.context_parallel_degree.value_or(1) > 1) {
    check(parallel.context_exchange_degree, "parallel.context_exchange_degree");
  }
  if (job.model.num_experts > 0) {
    check(parallel.expert_parallel_degree, "parallel.expert_parallel_degree");
    check(parallel.expert_tensor_degree, "parallel.expert_tensor_degree");
  }
  check(parallel.sequence_parallel, "parallel.sequence_parallel");
  check(parallel.activation_checkpointing, "parallel.activation_checkpointing");
  check(parallel.recompute, "parallel.recompute");
  check(parallel.offload_activations, "parallel.offload_activations");
  check(parallel.offload_optimizer, "parallel.offload_optimizer");
  check(parallel.offload_parameters, "parallel.offload_parameters");
  check(parallel.delayed_parameter_initialization, "parallel.delayed_parameter_initialization");
  return keys;
}

std::string write_plan(const Plan& plan) {
  SMP_CHECK_EQ(fmt::format("{}", fmt::join(open_keys(plan.job), " ")), "");
  const std::string body = body_of(plan);
  return fmt::format(
      "# A plan, written by smp-plan and read by smp-launch and smp-worker. Do not edit it: change "
      "the\n# job and plan again. The hash detects edits; it is no signature.\n"
      "{}: {}\n{}: {}\n{}: {}\n{}",
      kVersionKey, kPlanFormatVersion, kBytesKey, body.size(), kHashKey, plan_hash(body), body);
}

}  // namespace smp::planfile
