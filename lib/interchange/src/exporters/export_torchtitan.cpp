#include <fmt/format.h>

#include <array>
#include <cstdlib>

#include "exporters/export_view.h"
#include "smp/plan/spec/job_names.h"

// A torchtitan configuration: a Python module with one function. Source: torchtitan b5bcd76,
// torchtitan/config/configs.py, distributed/pipeline_parallel.py, models/*/__init__.py.
namespace smp::exporters {
namespace {

// The sizes that torchtitan has a name for.
struct Flavor {
  std::string_view module;  // of torchtitan.models
  std::string_view name;
  std::string_view base;  // a configuration of that module to start from
  int64_t hidden, layers, heads, kv_heads, ffn, vocab, experts;
};
constexpr std::array kFlavors = {
    Flavor{"llama3", "1B", "llama3_8b", 2048, 16, 32, 8, 8192, 128256, 0},
    Flavor{"llama3", "3B", "llama3_8b", 3072, 28, 24, 8, 8192, 128256, 0},
    Flavor{"llama3", "8B", "llama3_8b", 4096, 32, 32, 8, 14336, 128256, 0},
    Flavor{"llama3", "70B", "llama3_70b", 8192, 80, 64, 8, 28672, 128256, 0},
    Flavor{"llama3", "405B", "llama3_405b", 16384, 126, 128, 8, 53248, 128256, 0},
    Flavor{"qwen3", "0.6B", "qwen3_0_6b", 1024, 28, 16, 8, 3072, 151936, 0},
    Flavor{"qwen3", "1.7B", "qwen3_1_7b", 2048, 28, 16, 8, 6144, 151936, 0},
    Flavor{"qwen3", "4B", "qwen3_1_7b", 2560, 36, 32, 8, 9728, 151936, 0},
    Flavor{"qwen3", "8B", "qwen3_14b", 4096, 36, 32, 8, 12288, 151936, 0},
    Flavor{"qwen3", "14B", "qwen3_14b", 5120, 40, 40, 8, 17408, 151936, 0},
    Flavor{"qwen3", "32B", "qwen3_32b", 5120, 64, 64, 8, 25600, 151936, 0},
    Flavor{"qwen3", "30B-A3B", "qwen3_30b_a3b", 2048, 48, 32, 4, 768, 151936, 128},
    Flavor{"qwen3", "235B-A22B", "qwen3_30b_a3b", 4096, 94, 64, 4, 1536, 151936, 128},
};

bool is(const Flavor& flavor, const ModelSpec& model) {
  const int64_t ffn = model.num_experts > 0 ? model.expert_ffn_hidden_size : model.ffn_hidden_size;
  const bool qwen = flavor.module == "qwen3";
  const bool plain =
      !model.attention_output_bias && !model.head_bias && !model.parallel_residual &&
      model.head_dim * model.num_heads == (qwen ? 128 * model.num_heads : model.hidden_size) &&
      model.vocab_multiple_of == 1 && model.sliding_window == 0 &&
      rotary_dim_of(model) == model.head_dim && model.attention_dropout == 0 &&
      model.hidden_dropout == 0 && model.num_mtp_layers == 0 && model.kv_lora_rank == 0 &&
      model.norm_placement == NormPlacement::kBefore && model.layer_pattern.empty() &&
      model.vision_parameters == 0 && model.qk_norm_over == QkNormOver::kHead &&
      !model.attention_sinks && model.glu_limit == 0 && model.glu_offset == 0 &&
      !model.router_bias && model.rope_truncate;
  return plain && model.mlp == MlpKind::kSwiglu && model.norm == NormKind::kRmsNorm &&
         model.position_embedding == PositionKind::kRotary && !model.qkv_bias && !model.mlp_bias &&
         model.stack == Stack::kDecoder && model.qk_norm == qwen &&
         model.hidden_size == flavor.hidden && model.num_layers == flavor.layers &&
         model.num_heads == flavor.heads && model.num_kv_heads == flavor.kv_heads &&
         ffn == flavor.ffn && model.vocab_size == flavor.vocab &&
         model.num_experts == flavor.experts;
}

const Flavor* flavor_of(const ModelSpec& model) {
  for (const Flavor& flavor : kFlavors) {
    if (is(flavor, model)) return &flavor;
  }
  return nullptr;
}

const Flavor& nearest_flavor(const ModelSpec& model) {
  const std::string_view module = model.qk_norm ? "qwen3" : "llama3";
  const Flavor* best = &kFlavors.front();
  double distance = 1e30;
  for (const Flavor& flavor : kFlavors) {
    if (flavor.module != module || (flavor.experts > 0) != (model.num_experts > 0)) continue;
    const auto size = [](int64_t hidden, int64_t layers) {
      return static_cast<double>(hidden) * static_cast<double>(hidden) *
             static_cast<double>(layers);
    };
    const double far =
        std::abs(size(flavor.hidden, flavor.layers) - size(model.hidden_size, model.num_layers));
    if (far < distance) {
      distance = far;
      best = &flavor;
    }
  }
  return *best;
}

std::string_view schedule_word(const ExportView& view) {
  switch (view.schedule) {
    case PipelineKind::kSimple: return "GPipe";
    case PipelineKind::kInterleaved: return "1F1B";
    case PipelineKind::kVirtual: return "Interleaved1F1B";
    case PipelineKind::kZbV: return "ZBVZeroBubble";
    case PipelineKind::kZbH1: return "";
  }
  return "";
}

void refuse(const ExportView& view, Refusals& refusals) {
  const mesh::Degrees& degrees = view.degrees;
  const Flavor& near = nearest_flavor(view.model);
  refusals.refuse_if(
      flavor_of(view.model) == nullptr,
      fmt::format("a model with {} layers, hidden size {}, {} heads, {} KV heads, feed-forward "
                  "size {} and {} tokens (only torchtitan's named models are supported)",
                  view.model.num_layers, view.model.hidden_size, view.model.num_heads,
                  view.model.num_kv_heads, view.model.ffn_hidden_size, view.model.vocab_size),
      fmt::format("{} {}: {} layers, hidden size {}", near.module, near.name, near.layers,
                  near.hidden));
  refusals.precision_among({Precision::kFp32, Precision::kBf16}, Precision::kBf16);
  refusals.refuse_if(view.sharding == Sharding::kOptimizerState, "sharding: optimizer_state",
                     "sharding: gradients (fsdp_reshard_after_forward never)");
  refusals.refuse_if(degrees.pipeline > 1 && schedule_word(view).empty(),
                     fmt::format("pipeline: {}", name_of(view.schedule)),
                     "pipeline: interleaved or zb_v");
  refusals.refuse_if(view.offload_optimizer != view.offload_parameters,
                     view.offload_optimizer ? "offload_optimizer without offload_parameters"
                                            : "offload_parameters without offload_optimizer",
                     "both keys (enable_cpu_offload)");
  refusals.no_partitioned_activations();
  refusals.all_tensor_kinds();
  refusals.no_exchange();
  refusals.refuse_if(view.offload_activations, "offload_activations",
                     "recompute: full without offload_activations");
  refusals.refuse_if(
      view.parallel.recompute_layers.has_value() && view.recompute != Recompute::kNone,
      "recompute_layers", "recompute of all layers");
  const std::string& strategy = view.parallel.activation_checkpointing_strategy;
  refusals.refuse_if(view.recompute == Recompute::kFull && strategy != "each",
                     fmt::format("activation_checkpointing_strategy: {}", strategy),
                     "activation_checkpointing_strategy: each");
  refusals.refuse_if(degrees.expert > 1 && degrees.expert_tensor > 1,
                     fmt::format("expert_tensor_degree {}", degrees.expert_tensor),
                     "expert_tensor_degree 1");
  refusals.refuse_if(degrees.pipeline > 1 && view.virtual_stages > 1 && !view.partition_is_even(),
                     "unequal stages with virtual stages",
                     "the same number of layers in each stage");
}

// [["tok_embeddings", "layers.0"], ["layers.1", "norm", "lm_head"]]
std::string stage_names(const ExportView& view) {
  std::string out;
  int64_t layer = 0;
  const std::vector<int64_t> layers = view.partition();
  for (size_t stage = 0; stage < layers.size(); ++stage) {
    std::string names = stage == 0 ? "\"tok_embeddings\", " : "";
    names += fmt::format("*layers({}, {})", layer, layer + layers[stage]);
    if (stage + 1 == layers.size()) names += ", \"norm\", \"lm_head\"";
    out += fmt::format("            [{}],\n", names);
    layer += layers[stage];
  }
  return "[\n" + out + "        ]";
}

std::string parallelism(const ExportView& view) {
  const mesh::Degrees& degrees = view.degrees;
  const bool shards = view.sharding != Sharding::kNone;
  std::string out;
  const auto line = [&](std::string_view key, const auto& value) {
    out += fmt::format("        {}={},\n", key, value);
  };
  line("data_parallel_replicate_degree", shards ? degrees.replica : degrees.data());
  line("data_parallel_shard_degree", shards ? degrees.shard : 1);
  if (shards) {
    line("fsdp_reshard_after_forward",
         view.sharding == Sharding::kParameters ? "\"always\"" : "\"never\"");
  }
  line("tensor_parallel_degree", degrees.tensor);
  if (degrees.tensor > 1) {
    line("enable_sequence_parallel", view.sequence_parallel ? "True" : "False");
  }
  line("context_parallel_degree", degrees.context);
  line("pipeline_parallel_degree", degrees.pipeline);
  if (degrees.pipeline > 1) {
    line("pipeline_parallel_schedule", fmt::format("\"{}\"", schedule_word(view)));
    line("num_pp_microbatches", view.microbatches);
    const int64_t chunks = degrees.pipeline * view.virtual_stages;
    if (view.partition_is_even() && view.model.num_layers % chunks == 0) {
      line("pipeline_parallel_layers_per_stage", view.model.num_layers / chunks);
      line("pipeline_parallel_first_stage_less_layers", 0);
      line("pipeline_parallel_last_stage_less_layers", 0);
    } else {
      line("module_fqns_per_model_part", stage_names(view));
    }
  }
  if (view.model.num_experts > 0) line("expert_parallel_degree", degrees.expert);
  return out;
}

}  // namespace

std::string write_torchtitan(const ExportView& view, Refusals& refusals) {
  refuse(view, refusals);
  const Flavor* flavor = flavor_of(view.model);
  if (flavor == nullptr) return "";
  refusals.note_order("PDT", "torchtitan supports no other order");
  refusals.note_optimizer();
  refusals.note(fmt::format(
      "rotary frequencies, norm epsilon, tied embeddings and initial weights are those of {} {}",
      flavor->module, flavor->name));
  const TrainingSpec& training = view.training;
  const int64_t tokens = training.sequence_length;
  const std::string name = python_name(view.plan.job.name);
  std::string body;
  const auto line = [&](std::string_view key, const auto& value) {
    body += fmt::format("        {}={},\n", key, value);
  };
  line("num_tokens_per_microbatch_per_dp_rank", view.micro_batch * tokens);
  line("num_tokens_per_train_step", view.global_batch * tokens);
  line("max_context_length", tokens);
  line("max_norm", training.optimizer.gradient_clipping);
  if (training.steps > 0) line("steps", training.steps);
  line("enable_cpu_offload", view.offload_parameters ? "True" : "False");
  line("mixed_precision_param",
       view.precision == Precision::kBf16 ? "\"bfloat16\"" : "\"float32\"");
  const std::string_view recompute = view.recompute == Recompute::kFull ? "FullAC.Config()"
                                     : view.recompute == Recompute::kSelective
                                         ? "SelectiveAC.Config()"
                                         : "None";
  if (view.recompute == Recompute::kSelective) {
    refusals.note(
        "recompute: selective becomes SelectiveAC, which recomputes more than core attention");
  }
  std::string imports = "from torchtitan.config import ParallelismConfig, TrainingConfig\n";
  if (view.recompute != Recompute::kNone) {
    imports += fmt::format("from torchtitan.distributed.activation_checkpoint import {}\n",
                           recompute.substr(0, recompute.find('.')));
  }
  imports += fmt::format(
      "from torchtitan.models.{0} import model_registry\n"
      "from torchtitan.models.{0}.config_registry import {1}\n",
      flavor->module, flavor->base);
  imports += "from torchtitan.trainer import Trainer\n";
  const std::string layers = body.empty() || parallelism(view).find("*layers(") == std::string::npos
                                 ? ""
                                 : "\n\ndef layers(begin: int, end: int) -> list[str]:\n"
                                   "    return [f\"layers.{i}\" for i in range(begin, end)]\n";
  return fmt::format(
      "# MODULE=<this module> CONFIG={0} NGPU={1} ./run_train.sh, on {2} x {3} GPUs\n{4}{5}\n\n"
      "def {0}() -> Trainer.Config:\n"
      "    config = {6}()\n"
      "    config.model_spec = model_registry(\"{7}\")\n"
      "    config.training = TrainingConfig(\n{8}    )\n"
      "    config.parallelism = ParallelismConfig(\n{9}    )\n"
      "    config.activation_checkpoint = {10}\n"
      "    return config\n",
      name, view.degrees.world(), view.hosts, view.processes_per_host, imports, layers,
      flavor->base, flavor->name, body, parallelism(view), recompute);
}

}  // namespace smp::exporters
