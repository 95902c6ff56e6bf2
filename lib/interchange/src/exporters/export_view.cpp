#include "exporters/export_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "smp/plan/base/errors.h"
#include "smp/plan/spec/job_names.h"
#include "smp/plan/text/lower_case.h"

namespace smp::exporters {

ExportView::ExportView(const Plan& of)
    : plan(of),
      model(of.job.model),
      training(of.job.training),
      parallel(of.job.parallel),
      degrees(of.degrees) {
  sharding = degrees.shard > 1 ? parallel.sharding.value_or(Sharding::kNone) : Sharding::kNone;
  schedule = parallel.pipeline.value_or(PipelineKind::kInterleaved);
  precision = training.precision.value_or(Precision::kFp32);
  const bool full = parallel.activation_checkpointing.value_or(false);
  recompute = parallel.recompute.value_or(full ? Recompute::kFull : Recompute::kNone);
  virtual_stages = degrees.pipeline > 1 ? parallel.virtual_pipeline_degree.value_or(1) : 1;
  micro_batch = training.micro_batch.value_or(1);
  microbatches = training.microbatches.value_or(1);
  global_batch = training.global_batch.value_or(micro_batch * microbatches * degrees.data());
  hosts = plan.job.cluster.hosts;
  processes_per_host = plan.job.cluster.processes_per_host;
  offload_activations = parallel.offload_activations.value_or(false);
  offload_optimizer = parallel.offload_optimizer.value_or(false);
  offload_parameters = parallel.offload_parameters.value_or(false);
  sequence_parallel = degrees.tensor > 1 && parallel.sequence_parallel.value_or(false);
}

std::vector<int64_t> ExportView::partition() const {
  if (!parallel.partition.empty()) return parallel.partition;
  std::vector<int64_t> out;
  for (int64_t stage = 0; stage < degrees.pipeline; ++stage) {
    out.push_back(model.num_layers / degrees.pipeline +
                  (stage < model.num_layers % degrees.pipeline ? 1 : 0));
  }
  return out;
}

bool ExportView::partition_is_even() const {
  const std::vector<int64_t> layers = partition();
  return std::ranges::all_of(layers, [&](int64_t n) { return n == layers.front(); });
}

std::string ExportView::rank_order() const {
  std::string order = parallel.placement_strategy;
  if (order == "cluster") order = "DPT";
  if (order == "spread") order = "TPD";
  std::string out;
  for (const char axis : order) {
    const int64_t width = axis == 'D'   ? degrees.data()
                          : axis == 'P' ? degrees.pipeline
                                        : degrees.tensor * degrees.context;
    if (width > 1) out += axis;
  }
  return out;
}

void Refusals::refuse_if(bool wrong, std::string what, std::string nearest) {
  if (wrong) problems_.push_back(fmt::format("{}; nearest supported: {}", what, nearest));
}

void Refusals::note_order(std::string_view order, std::string_view how) {
  std::string theirs;
  const std::string ours = view_.rank_order();
  for (const char axis : order) {
    if (ours.find(axis) != std::string::npos) theirs += axis;
  }
  if (theirs == ours) return;
  note(fmt::format(
      "ranks: the plan orders its axes {} (slowest first), the target orders them {}: {}", ours,
      theirs, how));
}

void Refusals::raise_if_any(const std::string& name, std::string_view target) const {
  if (problems_.empty()) return;
  std::string out;
  for (const std::string& problem : problems_) {
    out +=
        fmt::format("{}{}: {} does not support {}", out.empty() ? "" : "\n", name, target, problem);
  }
  throw ConfigError(out);
}

void Refusals::no_context() {
  refuse_if(view_.degrees.context > 1,
            fmt::format("context_parallel_degree {}", view_.degrees.context),
            "context_parallel_degree 1, or the targets megatron, torchtitan and sagemaker-v2");
}

void Refusals::no_exchange() {
  refuse_if(view_.degrees.exchange > 1,
            fmt::format("context_exchange_degree {}", view_.degrees.exchange),
            "context_exchange_degree 1, or the target megatron");
}

void Refusals::no_partitioned_activations() {
  refuse_if(view_.parallel.partition_activations, "partition_activations",
            "recompute: full without partition_activations");
}

void Refusals::offloads_checkpoints_alone() {
  refuse_if(view_.offload_activations && view_.recompute != Recompute::kFull,
            fmt::format("offload_activations with recompute: {}", name_of(view_.recompute)),
            "offload_activations with recompute: full");
}

void Refusals::all_tensor_kinds() {
  const TensorKinds& kinds = view_.parallel.tensor_parallel;
  const char* key = !kinds.attention ? "attention" : !kinds.mlp ? "mlp" : "embedding";
  refuse_if(view_.degrees.tensor > 1 && !kinds.all(),
            fmt::format("tensor_parallel: {{{}: false}}", key), "all kinds (the default)");
}

void Refusals::no_experts() {
  refuse_if(view_.degrees.expert > 1,
            fmt::format("expert_parallel_degree {}", view_.degrees.expert),
            "expert_parallel_degree 1, or the targets megatron, torchtitan and sagemaker-v2");
}

void Refusals::precision_among(std::initializer_list<Precision> known, Precision nearest) {
  const bool is_known = std::ranges::count(known, view_.precision) > 0;
  refuse_if(!is_known, fmt::format("precision {}", name_of(view_.precision)),
            fmt::format("precision {}", name_of(nearest)));
}

std::string comments(const std::vector<std::string>& notes) {
  std::string out;
  for (const std::string& note : notes) out += "# " + note + "\n";
  return out;
}

std::string python_name(const std::string& text) {
  std::string out;
  for (const char c : text::lower_case(text)) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) || c == '_';
    out += plain ? c : '_';
  }
  if (out.empty() || std::isdigit(static_cast<unsigned char>(out[0]))) out = "job_" + out;
  return out;
}

}  // namespace smp::exporters
