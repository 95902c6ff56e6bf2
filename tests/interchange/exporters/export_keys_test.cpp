#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "jobfile/field_table.h"
#include "smp/interchange/exporters/export.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/jobfile/job_reader.h"
#include "smp/plan/rules/degree_rules.h"
#include "smp/plan/text/diagnostics.h"
#include "smp/plan/text/yaml_tree.h"

// No target may pass over a key of a job in silence. Each key is changed alone, in a job whose
// other keys make it count: then the target's file differs, or its notes do, or it refuses. What a
// target's file has no place for is listed below, with the reason; a key that is added to the job
// file and to neither table fails here.

using namespace smp;
using namespace smp::exporters;
using namespace smp::jobfile;
using namespace smp::mesh;
using namespace smp::text;

namespace {

struct Change {
  std::string_view key;
  std::string_view value;
  std::vector<std::pair<std::string_view, std::string_view>> with = {};  // before and after alike
};

using With = std::vector<std::pair<std::string_view, std::string_view>>;
const With kGelu = {{"model.mlp", "gelu"},
                    {"model.mlp_bias", "true"},
                    {"model.qkv_bias", "true"},
                    {"model.attention_output_bias", "true"}};
const With kLlama3 = {{"model.rope_scaling", "llama3"}};
const With kExperts = {{"model.num_experts", "8"},
                       {"model.experts_per_token", "2"},
                       {"model.expert_ffn_hidden_size", "1024"}};
const With kBiasedRouter = {{"model.num_experts", "8"},
                            {"model.experts_per_token", "2"},
                            {"model.expert_ffn_hidden_size", "1024"},
                            {"model.router", "sigmoid"},
                            {"model.router_correction_bias", "true"}};
const With kBalanced = {{"model.num_experts", "8"},
                        {"model.experts_per_token", "2"},
                        {"model.expert_ffn_hidden_size", "1024"},
                        {"model.router_balance_loss", "0.01"}};
const With kSharedExpert = {{"model.num_experts", "8"},
                            {"model.experts_per_token", "2"},
                            {"model.expert_ffn_hidden_size", "1024"},
                            {"model.shared_expert_ffn_hidden_size", "512"}};
const With kTwoExpertRanks = {{"model.num_experts", "8"},
                              {"model.experts_per_token", "2"},
                              {"model.expert_ffn_hidden_size", "1024"},
                              {"parallel.expert_parallel_degree", "2"}};
const With kLatent = {{"model.kv_lora_rank", "64"},
                      {"model.q_lora_rank", "32"},
                      {"model.qk_head_dim", "32"},
                      {"model.qk_rope_head_dim", "32"},
                      {"model.v_head_dim", "64"}};
const With kLatentYarn = {
    {"model.kv_lora_rank", "64"},     {"model.qk_head_dim", "32"},
    {"model.qk_rope_head_dim", "32"}, {"model.v_head_dim", "64"},
    {"model.rope_scaling", "yarn"},   {"model.rope_original_positions", "4096"},
    {"model.rope_mscale", "1"},       {"model.rope_mscale_all_dim", "1"}};
const With kWindow = {{"model.sliding_window", "128"}};
const With kHybridLayers = {{"model.layer_pattern", "M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M"},
                            {"model.mamba_heads", "64"},
                            {"model.mamba_head_dim", "64"},
                            {"model.mamba_state_dim", "64"},
                            {"model.mamba_groups", "8"}};
const With kFp16 = {{"training.precision", "fp16"}};
const With kSgd = {{"training.optimizer.kind", "sgd"}};
const With kStages = {{"parallel.pipeline_parallel_degree", "2"}};
const With kSplit = {{"parallel.tensor_parallel_degree", "2"}};
const With kVirtual = {{"parallel.pipeline_parallel_degree", "2"},
                       {"parallel.pipeline", "virtual"}};
const With kFull = {{"parallel.recompute", "full"}};
const With kSteps = {{"training.steps", "100"}};
const With kLora = {{"training.lora.rank", "8"}};

const std::vector<Change>& changes() {
  static const std::vector<Change> kChanges = {
      {"model.stack", "encoder"},
      {"model.mlp", "gelu"},
      {"model.gelu", "erf", kGelu},
      {"model.glu_limit", "7"},
      {"model.glu_offset", "1"},
      {"model.norm", "layernorm"},
      {"model.norm_placement", "both"},
      {"model.position_embedding", "learned"},
      {"model.qkv_bias", "true"},
      {"model.attention_output_bias", "true"},
      {"model.mlp_bias", "true"},
      {"model.head_bias", "true"},
      {"model.qk_norm", "true"},
      {"model.qk_norm_over", "all_heads", {{"model.qk_norm", "true"}}},
      {"model.attention_sinks", "true"},
      {"model.parallel_residual", "true"},
      {"model.shared_norm", "true", {{"model.parallel_residual", "true"}}},
      {"model.num_layers", "16"},
      {"model.decoder_layers", "4", {{"model.stack", "encoder_decoder"}}},
      {"model.hidden_size", "2048"},
      {"model.num_heads", "16"},
      {"model.num_kv_heads", "4"},
      {"model.head_dim", "64"},
      {"model.ffn_hidden_size", "2048"},
      {"model.vocab_size", "1000"},
      {"model.vocab_multiple_of", "128"},
      {"model.max_positions", "16384"},
      {"model.tied_embeddings", "true"},
      {"model.norm_epsilon", "0.1"},
      {"model.rope_theta", "10001"},
      {"model.rotary_dim", "64"},
      {"model.rope_scaling", "llama3"},
      {"model.rope_scaling_factor", "4", kLlama3},
      {"model.rope_low_freq_factor", "2", kLlama3},
      {"model.rope_high_freq_factor", "8", kLlama3},
      {"model.rope_original_positions", "4096", kLlama3},
      {"model.rope_beta_fast", "16", kLatentYarn},
      {"model.rope_beta_slow", "2", kLatentYarn},
      {"model.rope_truncate", "false", kLatentYarn},
      {"model.rope_attention_factor", "2", kLatentYarn},
      {"model.rope_mscale", "0.5", kLatentYarn},
      {"model.rope_mscale_all_dim", "0.5", kLatentYarn},
      {"model.sliding_window", "128"},
      {"model.chunked_windows", "true", kWindow},
      {"model.full_attention_period", "2", kWindow},
      {"model.initializer_range", "0.5"},
      {"model.attention_dropout", "0.25"},
      {"model.hidden_dropout", "0.25"},
      {"model.num_experts", "16", kExperts},
      {"model.experts_per_token", "4", kExperts},
      {"model.expert_ffn_hidden_size", "512", kExperts},
      {"model.shared_expert_ffn_hidden_size", "512", kExperts},
      {"model.shared_expert_gate", "true", kSharedExpert},
      {"model.router", "sigmoid", kExperts},
      {"model.normalize_expert_weights", "false", kExperts},
      {"model.routed_scaling_factor", "2.5", kExperts},
      {"model.router_bias", "true", kExperts},
      {"model.router_correction_bias", "true", kExperts},
      {"model.router_correction_rate", "0.01", kBiasedRouter},
      {"model.router_balance_loss", "0.01", kExperts},
      {"model.router_balance_over", "sequence", kBalanced},
      {"model.router_z_loss", "0.01", kExperts},
      {"model.expert_groups", "4", kExperts},
      {"model.expert_groups_per_token",
       "2",
       {{"model.num_experts", "8"},
        {"model.experts_per_token", "2"},
        {"model.expert_groups", "4"}}},
      {"model.first_dense_layers", "1", kExperts},
      {"model.moe_layer_period", "2", kExperts},
      {"model.expert_capacity_factor",
       "1.25",
       {{"model.num_experts", "8"}, {"model.experts_per_token", "2"}}},
      {"model.pad_experts_to_capacity",
       "true",
       {{"model.num_experts", "8"},
        {"model.experts_per_token", "2"},
        {"model.expert_capacity_factor", "1.25"}}},
      {"model.num_mtp_layers", "1"},
      {"model.mtp_loss_factor", "0.3", {{"model.num_mtp_layers", "1"}}},
      {"model.kv_lora_rank", "128", kLatent},
      {"model.q_lora_rank", "64", kLatent},
      {"model.qk_head_dim", "64", kLatent},
      {"model.qk_rope_head_dim", "64", kLatent},
      {"model.v_head_dim", "32", kLatent},
      {"model.layer_pattern", "M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M"},
      {"model.mamba_heads", "128", kHybridLayers},
      {"model.mamba_head_dim", "32", kHybridLayers},
      {"model.mamba_state_dim", "32", kHybridLayers},
      {"model.mamba_groups", "4", kHybridLayers},
      {"model.mamba_conv_kernel", "3", kHybridLayers},
      {"model.mamba_chunk_size", "64", kHybridLayers},
      {"model.vision_parameters", "1000"},
      {"training.sequence_length", "4096"},
      {"training.micro_batch", "2"},
      {"training.microbatches", "4"},
      {"training.global_batch", "128"},
      {"training.batch_ramp_start", "16"},
      {"training.batch_ramp_increment", "32", {{"training.batch_ramp_start", "16"}}},
      {"training.precision", "fp32"},
      {"training.attention", "unfused"},
      {"training.accumulate_gradients_in_fp32", "false"},
      {"training.fp8_recipe", "current", {{"training.precision", "fp8"}}},
      {"training.fp8_parameters", "true", {{"training.precision", "fp8"}}},
      {"training.frozen", "[embedding]"},
      {"training.lora.rank", "8"},
      {"training.lora.alpha", "16", kLora},
      {"training.lora.targets", "[attention.q]", kLora},
      {"training.lora.dropout", "0.25", kLora},
      {"training.lora.quantized", "nf4", kLora},
      {"training.steps", "7"},
      {"training.seed", "7"},
      {"training.optimizer.kind", "sgd"},
      {"training.optimizer.schedule", "linear", kSteps},
      {"training.optimizer.learning_rate", "0.25"},
      {"training.optimizer.min_learning_rate", "0.125", kSteps},
      {"training.optimizer.warmup_steps", "9", kSteps},
      {"training.optimizer.decay_steps", "9", {{"training.optimizer.schedule", "wsd"}}},
      {"training.optimizer.beta1", "0.5"},
      {"training.optimizer.beta2", "0.5"},
      {"training.optimizer.epsilon", "0.5"},
      {"training.optimizer.momentum", "0.5", kSgd},
      {"training.optimizer.nesterov", "true", kSgd},
      {"training.optimizer.weight_decay", "0.5"},
      {"training.optimizer.gradient_clipping", "0.5"},
      {"training.optimizer.master_weights", "remainder"},
      {"training.optimizer.momentum_dtype", "bf16"},
      {"training.optimizer.variance_dtype", "bf16"},
      {"training.loss_scale.dynamic", "false", kFp16},
      {"training.loss_scale.init_scale", "1024", kFp16},
      {"training.loss_scale.scale_factor", "4", kFp16},
      {"training.loss_scale.scale_window", "77", kFp16},
      {"training.loss_scale.min_scale", "4", kFp16},
      {"training.loss_scale.delayed_shift", "7", kFp16},
      {"training.loss_scale.raise_error_at_min_scale", "false", kFp16},
      {"parallel.pipeline_parallel_degree", "2"},
      {"parallel.tensor_parallel_degree", "2"},
      {"parallel.sharded_data_parallel_degree", "4"},
      {"parallel.context_parallel_degree", "2"},
      {"parallel.context_exchange_degree", "2", {{"parallel.context_parallel_degree", "2"}}},
      {"parallel.expert_parallel_degree", "4", kTwoExpertRanks},
      {"parallel.expert_tensor_degree",
       "1",
       {{"parallel.tensor_parallel_degree", "2"},
        {"model.num_experts", "8"},
        {"model.experts_per_token", "2"},
        {"parallel.expert_parallel_degree", "2"}}},
      {"parallel.sequence_parallel", "true", kSplit},
      {"parallel.tensor_parallel.attention", "false", kSplit},
      {"parallel.tensor_parallel.mlp", "false", kSplit},
      {"parallel.tensor_parallel.embedding", "false", kSplit},
      {"parallel.sharding", "gradients"},
      {"parallel.pipeline", "simple", kStages},
      {"parallel.virtual_pipeline_degree", "4", kVirtual},
      {"parallel.placement_strategy", "PDT", kStages},
      {"parallel.active_microbatches", "1", kStages},
      {"parallel.partition", "[20, 12]", kStages},
      {"parallel.recompute", "full"},
      {"parallel.recompute_modules", "[mlp]", {{"parallel.recompute", "selective"}}},
      {"parallel.recompute_layers", "3", kFull},
      {"parallel.activation_checkpointing_strategy", "group_2", kFull},
      {"parallel.offload_activations", "true", kFull},
      {"parallel.partition_activations",
       "true",
       {{"parallel.recompute", "full"}, {"parallel.tensor_parallel_degree", "2"}}},
      {"parallel.activation_loading_horizon",
       "64",
       {{"parallel.recompute", "full"}, {"parallel.offload_activations", "true"}}},
      {"parallel.offload_optimizer", "true"},
      {"parallel.offload_parameters", "true"},
      {"parallel.prefetch_layers", "5"},
      {"parallel.max_live_parameters", "12345678"},
      {"parallel.param_persistence_threshold", "54321"},
      {"parallel.delayed_parameter_initialization", "true"},
      {"parallel.bucket_bytes", "1000000"},
      {"parallel.shard_bucket_bytes", "1000000"},
  };
  return kChanges;
}

// Keys that are no part of the training that a target could be told of.
const std::map<std::string_view, std::string_view> kNobodys = {
    {"name", "for people"},
    {"model.name", "for people"},
    {"model.hf_config", "has become the sizes"},
    {"model.family", "has become the attributes"},
    {"model.layers", "lists are refused as a whole"},
    {"model.rope_short_factors", "of longrope, which no target takes"},
    {"model.rope_long_factors", "of longrope, which no target takes"},
    {"model.loss", "of lists"},
    {"model.input.", "of lists"},
    {"cluster.", "what the planner prices with; the number of ranks is in every file"},
    {"training.max_tokens_per_batch", "a limit of the planner's"},
    {"training.fused_loss", "no number of the training changes"},
    {"training.compiled", "no number of the training changes"},
    {"training.deterministic", "no number of the training changes"},
    {"training.fused_optimizer", "no number of the training changes"},
    {"training.init_from", "files are the script's"},
    {"training.tokenizer", "files are the script's"},
    {"training.save_weights_as", "files are the script's"},
    {"training.data.", "files are the script's"},
    {"training.checkpoint.", "files are the script's"},
    {"training.evaluation.", "files are the script's"},
    {"training.metrics", "where the engine writes its numbers"},
    {"training.fusions.", "no number of the training changes"},
    {"training.trace.", "what the engine records of itself"},
    {"parallel.partition_method", "has become the partition"},
    {"parallel.shard_optimizer_state", "has become sharding"},
    {"parallel.activation_checkpointing", "has become recompute"},
    {"parallel.forbid", "a limit of the planner's"},
    {"parallel.framework", "what the planner prices with"},
    {"parallel.data_collectives", "what the planner prices with"},
    {"parallel.collectives.", "the engine's own"},
    {"parallel.prescaled_batch", "micro_batch says it"},
};

using Silent = std::map<std::string_view, std::string_view>;
constexpr std::string_view kOwnDepth = "how far ahead is the target's own to choose";
constexpr std::string_view kScripts = "the script's: the file describes no model";
constexpr std::string_view kScriptsRun = "the script's: the file describes no run";
constexpr std::string_view kFlavors = "a note names it as the named model's own";
constexpr std::string_view kSameNumbers = "no number of the training changes";
constexpr std::string_view kProduct = "global_batch and micro_batch say it";
constexpr std::string_view kEnd = "what a training that fails anyhow does in its last step";

Silent joined(Silent list, const Silent& more) {
  list.insert(more.begin(), more.end());
  return list;
}

// Files that describe neither a model nor a run.
const Silent kLayoutOnly = {{"model.", kScripts},
                            {"training.sequence_length", kScriptsRun},
                            {"training.attention", kScriptsRun},
                            {"parallel.prefetch_layers", kOwnDepth},
                            {"parallel.shard_bucket_bytes", kSameNumbers}};

const Silent kSmpV2 =
    joined(kLayoutOnly, {{"training.microbatches", kScriptsRun},
                         {"training.global_batch", kScriptsRun},
                         {"training.accumulate_gradients_in_fp32", kScriptsRun},
                         {"training.fp8_parameters", kScriptsRun},
                         {"training.fp8_recipe", kScriptsRun},
                         {"training.steps", kScriptsRun},
                         {"parallel.max_live_parameters", kOwnDepth},
                         {"parallel.param_persistence_threshold", kOwnDepth},
                         {"parallel.delayed_parameter_initialization", kSameNumbers},
                         {"parallel.bucket_bytes", kSameNumbers}});

const std::map<ExportTarget, Silent>& silent() {
  static const std::map<ExportTarget, Silent> kSilent = {
      {ExportTarget::kDeepSpeed,
       joined(kLayoutOnly, {{"training.seed", kScriptsRun},
                            {"training.loss_scale.raise_error_at_min_scale", kEnd},
                            {"parallel.activation_loading_horizon", kOwnDepth},
                            {"parallel.delayed_parameter_initialization", kSameNumbers}})},
      {ExportTarget::kMegatron,
       {{"training.microbatches", kProduct},
        {"training.loss_scale.raise_error_at_min_scale", kEnd},
        {"parallel.active_microbatches", kOwnDepth},
        {"parallel.prefetch_layers", kOwnDepth},
        {"parallel.shard_bucket_bytes", kSameNumbers},
        {"parallel.max_live_parameters", kOwnDepth},
        {"parallel.param_persistence_threshold", kOwnDepth},
        {"parallel.delayed_parameter_initialization", kSameNumbers}}},
      {ExportTarget::kTorchtitan,
       {{"model.max_positions", "max_context_length is the sequence's"},
        {"model.tied_embeddings", kFlavors},
        {"model.norm_epsilon", kFlavors},
        {"model.rope_theta", kFlavors},
        {"model.rope_scaling", kFlavors},
        {"model.rope_scaling_factor", kFlavors},
        {"model.rope_low_freq_factor", kFlavors},
        {"model.rope_high_freq_factor", kFlavors},
        {"model.rope_original_positions", kFlavors},
        {"model.initializer_range", kFlavors},
        {"training.microbatches", kProduct},
        {"training.attention", kSameNumbers},
        {"training.accumulate_gradients_in_fp32", "mixed_precision_reduce is fp32 by default"},
        {"training.seed", kScriptsRun},
        {"parallel.active_microbatches", kOwnDepth},
        {"parallel.prefetch_layers", kOwnDepth},
        {"parallel.shard_bucket_bytes", kSameNumbers},
        {"parallel.max_live_parameters", kOwnDepth},
        {"parallel.param_persistence_threshold", kOwnDepth},
        {"parallel.delayed_parameter_initialization", kSameNumbers},
        {"parallel.bucket_bytes", kSameNumbers}}},
      {ExportTarget::kAccelerate,
       joined(kLayoutOnly, {{"training.global_batch", kScriptsRun},
                            {"training.accumulate_gradients_in_fp32", kScriptsRun},
                            {"training.fp8_parameters", kScriptsRun},
                            {"training.fp8_recipe", kScriptsRun},
                            {"training.steps", kScriptsRun},
                            {"training.seed", kScriptsRun},
                            {"parallel.activation_loading_horizon", kOwnDepth},
                            {"parallel.max_live_parameters", kOwnDepth},
                            {"parallel.param_persistence_threshold", kOwnDepth},
                            {"parallel.delayed_parameter_initialization", kSameNumbers},
                            {"parallel.bucket_bytes", kSameNumbers}})},
      {ExportTarget::kSageMakerV1,
       joined(kLayoutOnly, {{"training.global_batch", kScriptsRun},
                            {"training.accumulate_gradients_in_fp32", kScriptsRun},
                            {"training.steps", kScriptsRun},
                            {"training.seed", kScriptsRun}})},
      {ExportTarget::kSageMakerV2, kSmpV2},
      {ExportTarget::kSageMakerSdk3, kSmpV2},
  };
  return kSilent;
}

// A small Llama on eight ranks, all keys pinned.
JobSpec base_job(ExportTarget target) {
  const bool cut = target == ExportTarget::kMegatron;
  const std::string text = fmt::format(
      "model: {{family: llama, num_layers: 32, hidden_size: 4096, num_heads: 32, num_kv_heads: 8, "
      "ffn_hidden_size: 14336, vocab_size: 128256, max_positions: 8192, rope_theta: 500000}}\n"
      "cluster: {{name: test, hosts: 1, processes_per_host: 8, device: cuda, has_bf16: true, "
      "has_fp16: true, memory_per_process: 80GiB}}\n"
      "training: {{sequence_length: 8192, micro_batch: 1, microbatches: 8, global_batch: 64, "
      "precision: bf16}}\n"
      "parallel: {{tensor_parallel_degree: 1, pipeline_parallel_degree: 1, sharding: {}, "
      "sharded_data_parallel_degree: 8, recompute: none}}\n",
      cut ? "optimizer_state" : "parameters");
  return read_job({{"base.yaml", text}});
}

void assign_text(JobSpec& job, std::string_view key, std::string_view value) {
  Diagnostics diagnostics;
  const std::string text = fmt::format("x: {}\n", value);
  const YamlTree tree = parse_yaml(text, diagnostics.add_source("value", text), diagnostics);
  const Field* field = find_field(key);
  REQUIRE(field != nullptr);
  const YamlNode* where = nullptr;
  const std::string problem = assign(*field, job, tree.root.entries.front().value, where);
  INFO(key, " ", problem);
  REQUIRE(problem.empty());
}

// What the target says of a job: its file and notes, or its refusal.
std::string said_of(const JobSpec& job, ExportTarget target, bool& refused) {
  Plan plan;
  plan.job = job;
  ParallelSpec& parallel = plan.job.parallel;
  const int64_t data = 8 / (*parallel.pipeline_parallel_degree * *parallel.tensor_parallel_degree *
                            parallel.context_parallel_degree.value_or(1));
  parallel.sharded_data_parallel_degree = std::min(*parallel.sharded_data_parallel_degree, data);
  close_plain_keys(plan.job);
  plan.degrees = rules::degrees_of(plan.job);
  refused = false;
  try {
    Exported out = export_plan(plan, target, "plan.yaml");
    for (const std::string& note : out.notes) out.text += note + "\n";
    return out.text;
  } catch (const ConfigError& error) {
    refused = true;
    return error.what();
  }
}

bool is_listed(const Silent& list, std::string_view key) {
  return std::ranges::any_of(list, [&](const auto& entry) {
    return entry.first.ends_with('.') ? key.starts_with(entry.first) : key == entry.first;
  });
}

}  // namespace

TEST_CASE("every key of a job file is changed here, or is no target's") {
  std::set<std::string> changed;
  for (const Change& change : changes()) changed.insert(std::string(change.key));
  CHECK(changed.size() == changes().size());
  for (const Field& field : job_fields()) {
    const std::string key = path_of(field);
    INFO(key);
    CHECK((changed.contains(key) != is_listed(kNobodys, key)));
    changed.erase(key);
  }
  CHECK(changed.empty());
}

TEST_CASE("no target passes over a key in silence") {
  for (int i = 0; i < kExportTargets; ++i) {
    const auto target = static_cast<ExportTarget>(i);
    if (target == ExportTarget::kTorchrun || target == ExportTarget::kMpirun) continue;
    const Silent& own = silent().at(target);
    std::set<std::string_view> seen;
    int told = 0;
    for (const Change& change : changes()) {
      INFO(name_of(target), " ", change.key);
      JobSpec before = base_job(target);
      for (const auto& [key, value] : change.with) assign_text(before, key, value);
      JobSpec after = before;
      assign_text(after, change.key, change.value);
      bool refused_before = false, refused_after = false;
      const std::string first = said_of(before, target, refused_before);
      const std::string second = said_of(after, target, refused_after);
      if (first != second) {
        ++told;
        continue;
      }
      if (refused_before) continue;  // what makes the key count is refused already
      INFO("says nothing of it");
      CHECK(is_listed(own, change.key));
      for (const auto& entry : own) {
        if (is_listed({entry}, change.key)) seen.insert(entry.first);
      }
    }
    for (const auto& entry : own) {
      INFO(name_of(target), " ", entry.first, " is said, or refused: ", entry.second);
      CHECK(seen.contains(entry.first));
    }
    CHECK(told >= 10);
  }
}
