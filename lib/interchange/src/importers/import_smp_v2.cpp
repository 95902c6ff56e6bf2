#include <fmt/format.h>

#include "importers/foreign_keys.h"
#include "importers/smp_dictionary.h"

// SMP v2 (torch.sagemaker): the keys of its configuration dictionary.
// Source: "SageMaker model parallel library v2 reference" and sagemaker-python-sdk,
// sagemaker-train/src/sagemaker/train/distributed.py, class SMP.
namespace smp::importers {

const std::vector<ForeignKey>& smp_v2_keys() {
  static const std::vector<ForeignKey> kKeys = {
      {"hybrid_shard_degree", Form::kWhole, Use::kRead,
       "parallel.sharded_data_parallel_degree, parallel.sharding",
       "z = value / context_parallel_degree; 1 = no sharding; 0 (the default) = over all "
       "data-parallel ranks"},
      {"sm_activation_offloading", Form::kBool, Use::kRead,
       "parallel.offload_activations, parallel.activation_checkpointing",
       "offloads activation checkpoints to host memory; absent: the script decides"},
      {"activation_loading_horizon", Form::kWhole, Use::kCopied,
       "parallel.activation_loading_horizon",
       "number of layers whose checkpoints are fetched ahead", "", "", 1},
      {"tensor_parallel_degree", Form::kWhole, Use::kCopied, "parallel.tensor_parallel_degree",
       "the same", "", "", 1},
      {"context_parallel_degree", Form::kWhole, Use::kCopied, "parallel.context_parallel_degree",
       "the same; at most hybrid_shard_degree", "", "", 1},
      {"expert_parallel_degree", Form::kWhole, Use::kCopied, "parallel.expert_parallel_degree",
       "the same", "", "", 1},
      {"random_seed", Form::kWhole, Use::kCopied, "training.seed", "the same"},
      {"fsdp_cache_flush_warnings", Form::kBool, Use::kIgnored, "",
       "warning of PyTorch's allocator"},
      {"allow_empty_shards", Form::kBool, Use::kIgnored, "",
       "smp pads rows, so every rank owns the same bytes"},
  };
  return kKeys;
}

void read_smp_v2(const text::YamlNode& root, text::Diagnostics& diagnostics,
                 const ImportContext& context, Imported& out) {
  ForeignReader reader(smp_v2_keys(), diagnostics, out);
  const text::YamlNode* parameters = smp_parameters(root, diagnostics, out);
  if (parameters == nullptr) return;
  reader.read(
      refuse_other_version(*parameters, smp_v2_keys(), smp_v1_keys(), "SMP v1", diagnostics), "",
      UnknownKeys::kError);
  reader.copy_all();
  note_framework(reader, "smp-v2");
  reader.set("parallel.pipeline_parallel_degree", "1", "SMP v2 has no pipeline");
  const std::optional<int64_t> processes = smp_processes_per_host(root, diagnostics, out);
  if (processes) {
    reader.set("cluster.processes_per_host", fmt::format("{}", *processes), "processes_per_host");
  }

  const int64_t context_degree = reader.whole("context_parallel_degree").value_or(1);
  const int64_t hybrid = reader.whole("hybrid_shard_degree").value_or(0);
  if (hybrid > 0 && context_degree > hybrid) {
    reader.error("context_parallel_degree",
                 fmt::format("context_parallel_degree ({}) is larger than hybrid_shard_degree "
                             "({}): lower context_parallel_degree, or raise hybrid_shard_degree",
                             context_degree, hybrid));
  } else if (hybrid > 0 && hybrid % context_degree != 0) {
    reader.error("hybrid_shard_degree",
                 fmt::format("hybrid_shard_degree ({}) is not divisible by context_parallel_degree "
                             "({})",
                             hybrid, context_degree));
  } else if (hybrid > 0) {
    const int64_t shard = hybrid / context_degree;
    reader.set_from("hybrid_shard_degree", "parallel.sharded_data_parallel_degree",
                    fmt::format("{}", shard));
    reader.set_from("hybrid_shard_degree", "parallel.sharding", shard > 1 ? "parameters" : "none");
    if (shard == 1 && hybrid > 1) {
      reader.warn(
          "hybrid_shard_degree",
          "with hybrid_shard_degree = context_parallel_degree, SMP shards over the ranks of a "
          "sequence only; a job file cannot express this layout, so the plan does not shard");
    }
  } else if (hybrid == 0 && reader.usable("hybrid_shard_degree")) {
    set_shard_over_all(reader, "parameters", context, context_degree,
                       reader.whole("tensor_parallel_degree").value_or(1), 1,
                       "hybrid_shard_degree = 0", processes);
  }
  if (const auto offload = reader.boolean("sm_activation_offloading")) {
    reader.set_from("sm_activation_offloading", "parallel.offload_activations",
                    *offload ? "true" : "false");
    if (*offload) {
      reader.set_from("sm_activation_offloading", "parallel.activation_checkpointing", "true");
    }
  } else if (reader.usable("sm_activation_offloading")) {
    reader.note(
        "sm_activation_offloading is absent; SMP's default (true) applies only if the script "
        "checkpoints activations, so the planner chooses");
  }
}

}  // namespace smp::importers
