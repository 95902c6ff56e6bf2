#include "smp/plan/rules/engine_rules.h"

#include <algorithm>
#include <map>
#include <set>

#include "smp/plan/data/byte_tokens.h"
#include "smp/plan/data/data_files.h"
#include "smp/plan/layout/rank_groups.h"
#include "smp/plan/mesh/collective.h"
#include "smp/plan/model/hybrid.h"
#include "smp/plan/model/layers.h"
#include "smp/plan/model/operators.h"
#include "smp/plan/model/router_loads.h"
#include "smp/plan/program/attributes.h"
#include "smp/plan/schedule/schedule_shape.h"
#include "smp/plan/spec/plan.h"

namespace smp::rules {
namespace {

static_assert(mesh::kMaxRanks == 256 && mesh::kMaxGroups == 256 &&
              mesh::kMaxRanksOfHosts == 1024);  // the texts below say so

// The largest number of groups with several ranks on one host. Each such group has a block of the
// host's shared memory. 0 = the plan has more ranks than the engine runs.
int64_t most_groups_of_a_host(const Plan& plan) {
  if (plan.degrees.world() > mesh::kMaxRanksOfHosts) return 0;
  std::map<int64_t, int64_t> groups;  // by host
  for (int64_t rank = 0; rank < plan.degrees.world(); ++rank) {
    for (const layout::RankGroup& group : layout::rank_groups(plan, rank)) {
      if (group.ranks.front() != rank || layout::grid_of(plan, group.ranks).per_host == 1) continue;
      std::set<int64_t> hosts;
      for (const int64_t member : group.ranks) {
        hosts.insert(member / plan.job.cluster.processes_per_host);
      }
      for (const int64_t host : hosts) ++groups[host];
    }
  }
  int64_t most = 0;
  for (const auto& [host, count] : groups) most = std::max(most, count);
  return most;
}

// Whether a rule concerns the machines that run all ranks, or each rank's share.
enum class Concerns { kShare, kPlace };

bool keeps_no_state(const TrainingSpec& training) {
  const bool half =
      training.precision == Precision::kBf16 || training.precision == Precision::kFp16;
  return !half && training.optimizer.kind == OptimizerKind::kSgd &&
         training.optimizer.momentum == 0;
}

bool shares_experts(const Plan& plan) {
  return plan.job.parallel.expert_parallel_degree.value_or(1) > 1;
}

bool shares_sequences(const Plan& plan) {
  return plan.job.parallel.context_parallel_degree.value_or(1) > 1;
}

bool is_windowed(const JobSpec& job) {
  const int64_t window = job.model.sliding_window;
  return window > 0 && window < job.training.sequence_length;
}

// Of what the plan, or a job, says.
bool mixes_passes_of_balanced_batch(const Plan& plan) {
  const ParallelSpec& parallel = plan.job.parallel;
  const int64_t microbatches = plan.job.training.microbatches.value_or(1);
  if (model::router_loads(plan.job.model) == 0) return false;
  const schedule::ScheduleShape shape{
      .kind = parallel.pipeline.value_or(PipelineKind::kSimple),
      .microbatches = microbatches,
      .active_microbatches = parallel.active_microbatches.value_or(microbatches)};
  return !schedule::forwards_come_first(shape);
}

struct EngineRule {
  bool (*broken)(const Plan&);
  const char* text;
  Concerns concerns = Concerns::kShare;
};

constexpr const char* kDrawsItsOwn =
    "parallel.delayed_parameter_initialization: false (a rank draws the weights that it holds, "
    "never the whole model)";

const EngineRule kRules[] = {
    {[](const Plan& plan) {
       return plan.job.cluster.device == DeviceKind::kCuda && model::is_list(plan.job.model);
     },
     "cluster.device: cuda with model.layers (the engine runs lists of layers on cpu)",
     Concerns::kPlace},
    {[](const Plan& plan) {
       return data::reads_bytes_unsaid(plan.job) &&
              plan.job.model.vocab_size > data::kMostByteVocabulary;
     },
     data::kManyTokens, Concerns::kPlace},
    {[](const Plan& plan) {
       return data::reads_bytes_unsaid(plan.job) && !plan.job.training.init_from.empty();
     },
     data::kKnowTokens, Concerns::kPlace},
    {[](const Plan& plan) { return is_narrow(*plan.job.training.precision); },
     "training.precision: fp8 or nvfp4 (the engine runs fp64, fp32, bf16 and fp16)"},
    {[](const Plan& plan) { return plan.job.training.attention == AttentionKind::kUnfused; },
     "training.attention: unfused (the engine runs flash)"},
    {[](const Plan& plan) { return plan.job.training.fused_loss; },
     "training.fused_loss: true (the engine has its own loss kernels)"},
    {[](const Plan& plan) { return plan.job.training.compiled; },
     "training.compiled: true (the engine is compiled C++ and does not use torch.compile)"},
    {[](const Plan& plan) {
       return !plan.job.training.accumulate_gradients_in_fp32.value_or(true);
     },
     "training.accumulate_gradients_in_fp32: false (the engine sums gradients in fp32)"},
    {[](const Plan& plan) {
       const OptimizerSpec& optimizer = plan.job.training.optimizer;
       return optimizer.master_weights != MasterKind::kFp32 ||
              optimizer.momentum_dtype != MomentKind::kFp32 ||
              optimizer.variance_dtype != MomentKind::kFp32;
     },
     "training.optimizer.master_weights, momentum_dtype or variance_dtype: other than fp32 (the "
     "engine keeps its optimizer's state in fp32)"},
    {[](const Plan& plan) { return plan.job.training.lora.rank > 0; },
     "training.lora.rank: above 0 (the engine trains no adapters yet; parallel.framework of "
     "another "
     "framework prices such a job)"},
    {[](const Plan& plan) { return !plan.job.training.frozen.empty(); },
     "training.frozen: parts of the model (the engine trains all weights; parallel.framework of "
     "another framework prices such a job)"},
    {[](const Plan& plan) { return plan.job.training.batch_ramp_start > 0; },
     "training.batch_ramp_start: above 0 (the engine runs one batch size)"},
    {[](const Plan& plan) { return plan.job.model.stack == Stack::kEncoder; },
     "model.stack: encoder (the engine runs decoder and encoder_decoder)"},
    {[](const Plan& plan) { return plan.job.model.position_embedding == PositionKind::kAlibi; },
     "model.position_embedding: alibi (the engine runs learned, rotary, relative and none)"},
    {[](const Plan& plan) {
       const ModelSpec& model = plan.job.model;
       return model.stack != Stack::kEncoder &&
              (model.stack == Stack::kEncoderDecoder) !=
                  (model.position_embedding == PositionKind::kRelative);
     },
     "model.position_embedding: relative in a decoder, or another one in an encoder_decoder (the "
     "engine runs relative positions in an encoder_decoder, and only there)"},
    {[](const Plan& plan) {
       return plan.job.training.data_pack != Packing::kConcatenate &&
              (model::is_list(plan.job.model) || plan.job.model.stack == Stack::kEncoderDecoder);
     },
     "training.data.pack: documents or pad in an encoder_decoder or with model.layers (the engine "
     "packs documents in decoders alone: write pack: concatenate)"},
    {[](const Plan& plan) {
       return plan.job.model.stack == Stack::kEncoderDecoder && plan.job.model.parallel_residual;
     },
     "model.parallel_residual: true in an encoder_decoder (the engine runs its branches one after "
     "the other)"},
    {[](const Plan& plan) {
       const ModelSpec& model = plan.job.model;
       return model.stack == Stack::kEncoderDecoder &&
              model::kv_copies(model, plan.degrees.tensor) > 1;
     },
     "model.stack: encoder_decoder on more tensor ranks than KV heads (the engine does not "
     "replicate KV heads of an encoder_decoder: write a tensor_parallel_degree of at most "
     "num_kv_heads)"},
    {[](const Plan& plan) { return plan.job.model.rope_scaling == RopeScaling::kDynamic; },
     "model.rope_scaling: dynamic (the engine runs none, linear, llama3, yarn and longrope)"},
    {[](const Plan& plan) {
       const ModelSpec& model = plan.job.model;
       return model.rope_scaling == RopeScaling::kLongRope &&
              (model.rope_short_factors.empty() || model.rope_long_factors.empty() ||
               rotary_dim_of(model) > 2 * program::kMostFactorPairs);
     },
     "model.rope_scaling: longrope without rope_short_factors and rope_long_factors, or with more "
     "than 128 elements of a head that rotate"},
    {[](const Plan& plan) {
       return is_windowed(plan.job) && plan.job.model.stack != Stack::kDecoder;
     },
     "model.sliding_window: below training.sequence_length in an encoder_decoder (the engine has "
     "windows in decoders alone)"},
    {[](const Plan& plan) {
       const ParallelSpec& parallel = plan.job.parallel;
       return model::is_list(plan.job.model) &&
              (parallel.sequence_parallel.value_or(false) || shares_sequences(plan));
     },
     "model.layers with sequence_parallel or context_parallel_degree (a list of layers reads "
     "images, which have no sequence)"},
    {[](const Plan& plan) {
       return model::is_list(plan.job.model) &&
              plan.job.parallel.recompute == Recompute::kSelective;
     },
     "model.layers with recompute: selective (selective recomputes a part of each transformer "
     "block, and a list of layers has no blocks: write recompute: full)"},
    {[](const Plan& plan) {
       return model::is_list(plan.job.model) && !plan.job.parallel.tensor_parallel.all();
     },
     "model.layers with a kind of parallel.tensor_parallel: false (tensor ranks share every matrix "
     "of a list)"},
    {[](const Plan& plan) { return plan.job.model.norm_placement != NormPlacement::kBefore; },
     "model.norm_placement: after or both (the engine has norms before attention and MLP)"},
    {[](const Plan& plan) { return plan.job.model.mlp == MlpKind::kSquaredRelu; },
     "model.mlp: squared_relu (the engine runs gelu, relu, swiglu and geglu)"},
    {[](const Plan& plan) { return is_windowed(plan.job) && plan.job.model.chunked_windows; },
     "model.chunked_windows: true with a window below training.sequence_length (the engine has "
     "sliding windows)"},
    {[](const Plan& plan) { return model::is_hybrid(plan.job.model); },
     "model.layer_pattern (the engine runs layers of attention and an MLP)"},
    {[](const Plan& plan) { return plan.job.model.vision_parameters > 0; },
     "model.vision_parameters: above 0 (the engine reads tokens alone)"},
    {[](const Plan& plan) {
       return plan.job.model.num_experts > 0 && plan.job.model.parallel_residual;
     },
     "model.parallel_residual: true with num_experts (the engine runs experts behind attention)"},
    {[](const Plan& plan) {
       const ModelSpec& model = plan.job.model;
       return model.num_experts > 0 && model.mlp_bias && model.shared_expert_ffn_hidden_size > 0;
     },
     "model.mlp_bias: true with shared_expert_ffn_hidden_size (the engine runs shared experts "
     "without biases)"},
    {[](const Plan& plan) {
       const ModelSpec& model = plan.job.model;
       return (model.glu_limit > 0 || model.glu_offset > 0) &&
              (model.num_experts == 0 || model.first_dense_layers > 0 ||
               model.moe_layer_period > 1);
     },
     "model.glu_limit or glu_offset: above 0 with dense layers (the engine has them in experts "
     "alone)"},
    {[](const Plan& plan) {
       const ModelSpec& model = plan.job.model;
       return model.qk_norm && model.qk_norm_over == QkNormOver::kAllHeads &&
              (model.norm != NormKind::kRmsNorm || model.stack != Stack::kDecoder);
     },
     "model.qk_norm_over: all_heads with layernorm or in an encoder_decoder (the engine runs such "
     "norms in decoders, as RMS norms)"},
    {[](const Plan& plan) {
       const ModelSpec& model = plan.job.model;
       return model.attention_sinks && (model.stack != Stack::kDecoder || model.kv_lora_rank > 0);
     },
     "model.attention_sinks: true with latent attention or in an encoder_decoder (the engine runs "
     "them in the plain attention of decoders)"},
    {mixes_passes_of_balanced_batch,
     "model.router_balance_over: batch with a backward before the step's last forward (the engine "
     "counts all choices first: write parallel.pipeline: simple without active_microbatches, or "
     "training.microbatches: 1)"},
    {[](const Plan& plan) { return plan.job.model.pad_experts_to_capacity; },
     "model.pad_experts_to_capacity: true (the engine gives an expert the rows that it takes)"},
    {[](const Plan& plan) {
       return shares_experts(plan) && plan.job.cluster.device == DeviceKind::kCuda;
     },
     "parallel.expert_parallel_degree: above 1 with cluster.device: cuda (on GPUs the engine "
     "shares "
     "experts over the tensor ranks)",
     Concerns::kPlace},
    {[](const Plan& plan) {
       return shares_experts(plan) && !plan.job.parallel.tensor_parallel.mlp &&
              plan.job.parallel.tensor_parallel_degree.value_or(1) > 1;
     },
     "parallel.expert_parallel_degree: above 1 with tensor_parallel.mlp: false (tensor ranks that "
     "share no MLP have the same tokens, and would send them twice)"},
    {[](const Plan& plan) {
       const ModelSpec& model = plan.job.model;
       return model.kv_lora_rank > 0 && (model.norm != NormKind::kRmsNorm || model.qkv_bias ||
                                         model.qk_norm || model.num_kv_heads != model.num_heads);
     },
     "model.kv_lora_rank: above 0 with layernorm, qkv_bias, qk_norm or another num_kv_heads than "
     "num_heads (the engine's latent attention has RMSNorm, no biases and no norms of heads, and "
     "makes keys for every head)"},
    {[](const Plan& plan) {
       return plan.job.model.num_mtp_layers > 0 && plan.job.cluster.device == DeviceKind::kCuda;
     },
     "model.num_mtp_layers: above 0 with cluster.device: cuda (the engine predicts further tokens "
     "on CPUs)",
     Concerns::kPlace},
    {[](const Plan& plan) { return plan.job.model.vocab_multiple_of > 1; },
     "model.vocab_multiple_of: above 1 (the engine does not pad the vocabulary)"},
    {[](const Plan& plan) {
       return shares_sequences(plan) && plan.job.model.stack == Stack::kEncoderDecoder;
     },
     "model.stack: encoder_decoder with context_parallel_degree above 1 (the engine shares the "
     "sequences of decoders: their causal attention has an order that slices balance)"},
    {[](const Plan& plan) {
       return shares_sequences(plan) && plan.job.model.expert_capacity_factor > 0;
     },
     "model.expert_capacity_factor: above 0 with context_parallel_degree above 1 (a full expert "
     "takes the tokens of whole sequences with the largest weights)"},
    {[](const Plan& plan) {
       return plan.job.cluster.device == DeviceKind::kCuda && shares_sequences(plan) &&
              plan.job.parallel.context_exchange_degree.value_or(1) !=
                  plan.job.parallel.context_parallel_degree;
     },
     "parallel.context_exchange_degree: below context_parallel_degree with cluster.device: cuda "
     "(on GPUs the engine exchanges heads, and passes no keys round a ring)",
     Concerns::kPlace},
    {[](const Plan& plan) {
       return plan.job.parallel.offload_optimizer == true && keeps_no_state(plan.job.training);
     },
     "parallel.offload_optimizer: true with sgd without momentum in fp32 or fp64 (this optimizer "
     "has no state to offload)"},
    {[](const Plan& plan) {
       const ParallelSpec& parallel = plan.job.parallel;
       return parallel.offload_parameters == true && parallel.offload_optimizer != true;
     },
     "parallel.offload_parameters: true without offload_optimizer: true (the engine updates "
     "offloaded weights on the host and needs the optimizer state there)"},
    {[](const Plan& plan) {
       const ParallelSpec& parallel = plan.job.parallel;
       return parallel.offload_parameters == true && parallel.sharded_data_parallel_degree == 1;
     },
     "parallel.offload_parameters: true with sharded_data_parallel_degree: 1 (the engine offloads "
     "shards: write a degree above 1)"},
    {[](const Plan& plan) { return !plan.job.parallel.framework.is_engine(); },
     "parallel.framework: other than smp (plans of other frameworks are for pricing: write "
     "framework: smp and plan again)"},
    {[](const Plan& plan) {
       return plan.job.cluster.device == DeviceKind::kCpu &&
              plan.job.parallel.data_collectives == CollectivesKind::kHost;
     },
     "parallel.data_collectives: host with cluster.device: cpu (collectives of CPU tensors have "
     "one transport: leave the key out)"},
    {[](const Plan& plan) { return plan.job.parallel.partition_activations; },
     "parallel.partition_activations: true (the engine does not partition activations)"},
    {[](const Plan& plan) {
       return plan.job.cluster.hosts > 1 && plan.degrees.world() > mesh::kMaxRanksOfHosts;
     },
     "cluster.hosts: more than 1024 ranks (the engine runs up to 1024 on several hosts)",
     Concerns::kPlace},
    {[](const Plan& plan) { return plan.job.cluster.processes_per_host > mesh::kMaxRanks; },
     "cluster.processes_per_host: more than 256 (the engine runs up to 256 ranks on a host)",
     Concerns::kPlace},
    {[](const Plan& plan) { return most_groups_of_a_host(plan) > mesh::kMaxGroups; },
     "parallel degrees with more than 256 groups of ranks on a host (the engine opens up to 256: "
     "raise one parallel degree, or use fewer ranks)",
     Concerns::kPlace},
    {[](const Plan& plan) {
       return plan.job.cluster.device == DeviceKind::kCpu &&
              plan.job.parallel.delayed_parameter_initialization == false;
     },
     kDrawsItsOwn},
    // Planned for GPUs it says what other engines do.
    {[](const Plan& plan) {
       return plan.job.cluster.device == DeviceKind::kCuda &&
              plan.job.parallel.delayed_parameter_initialization == false;
     },
     kDrawsItsOwn, Concerns::kPlace},
};

}  // namespace

std::vector<std::string> what_engine_cannot_run(const Plan& plan) {
  std::vector<std::string> found;
  for (const EngineRule& rule : kRules) {
    if (rule.broken(plan)) found.emplace_back(rule.text);
  }
  return found;
}

std::vector<std::string> what_engine_cannot_build(const Plan& plan) {
  std::vector<std::string> found;
  for (const EngineRule& rule : kRules) {
    if (rule.concerns == Concerns::kShare && rule.broken(plan)) found.emplace_back(rule.text);
  }
  return found;
}

std::vector<std::string> what_engine_lacks(const Plan& plan) {
  const bool planned_only = plan.job.training.steps == 0;
  return planned_only ? what_engine_cannot_build(plan) : what_engine_cannot_run(plan);
}

}  // namespace smp::rules
