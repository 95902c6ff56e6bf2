#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "smp/plan/base/dtype.h"
#include "smp/plan/mesh/collective.h"
#include "smp/plan/spec/operator_spec.h"

// A JobSpec is what a user asks for: model.yaml after strict parsing, before anything is chosen.
// An empty optional means "auto": the planner decides. Plain data; no invariants but those the
// parser has checked (see job_reader.h).
namespace smp {

namespace framework {
struct Framework;
}

// A family is a set of defaults for the attributes below it; kTransformer has none of its own.
enum class ModelFamily { kGpt2, kLlama, kTransformer };
enum class Stack { kDecoder, kEncoder, kEncoderDecoder };
enum class MlpKind { kGelu, kRelu, kSwiglu, kGeglu, kSquaredRelu };
// x * Phi(x) exactly, or by what stands for it: a tanh, or x * sigmoid(1.702 x) (Hendrycks and
// Gimpel 2016).
enum class GeluKind { kTanh, kErf, kSigmoid };
enum class NormKind { kLayerNorm, kRmsNorm };
// Of attention and of the MLP: at their input; at their output (OLMo 2); at both (Gemma 2 and 3).
enum class NormPlacement { kBefore, kAfter, kBoth };
// What a norm of queries or keys spans.
enum class QkNormOver { kHead, kAllHeads };
enum class PositionKind { kLearned, kRotary, kAlibi, kRelative, kNone };
// How rotary frequencies are stretched: by one factor; by wavelength (Llama 3.1); the others of
// transformers' modeling_rope_utils.py, whose sizes alone are known here.
enum class RopeScaling { kNone, kLinear, kLlama3, kDynamic, kYarn, kLongRope };
enum class DeviceKind { kCpu, kCuda };
// fp8 and nvfp4: matmuls; the rest as bf16
enum class Precision { kFp32, kFp64, kBf16, kFp16, kFp8, kNvfp4 };
// How fp8 operands are scaled: a tensor by what it held before, or by what it holds; tiles of 128
// elements; 32 elements (on Blackwell).
enum class Fp8Recipe { kDelayed, kCurrent, kBlockwise, kMxfp8 };
constexpr bool is_narrow(Precision precision) { return precision >= Precision::kFp8; }
enum class Sharding { kNone, kOptimizerState, kGradients, kParameters };  // ZeRO 0, 1, 2, 3
// All forward then all backward; 1F1B; Megatron's virtual stages; zero-bubble H1 and V.
enum class PipelineKind { kSimple, kInterleaved, kVirtual, kZbH1, kZbV };
// The part of the forward that the backward computes again: none; the core of attention; all.
enum class Recompute { kNone, kSelective, kFull };
enum class AttentionKind { kFlash, kUnfused };
enum class OptimizerKind { kAdamW, kSgd };
// How frozen matrices are stored beside adapters: as they were trained; in 4 bits with a scale for
// each 64 elements, which kNf4Double stores in 8 bits (Dettmers et al. 2023, QLoRA); in 8 bits.
// remainder: the 16 bits that a bf16 weight lacks; none: the 16-bit weights alone
enum class MasterKind { kFp32, kFp16, kRemainder, kNone };
enum class MomentKind { kFp32, kBf16, kFp16, kFp8, kInt8 };  // int8: scales for 256 elements
enum class QuantizedKind { kNone, kNf4, kNf4Double, kFp8, kInt8 };
// The unit that is a token of a text: the engine has no tokenizer.
enum class TokenKind { kBytes };
// How documents fill samples. kConcatenate: one long text, cut to length. kDocuments: attention
// stays within each document, and documents are cut as seldom as possible. kPad: one a sample.
enum class Packing { kConcatenate, kDocuments, kPad };
// The format of tokens on disk: bytes of text; Megatron-LM's .bin beside .idx; nanoGPT's bare 16
// bits; llm.c's .bin with a header; NumPy's .npy.
enum class DataFormat { kText, kMegatron, kNanogpt, kLlmc, kNpy };
// The schedule after the warm-up; wsd is constant, then decays.
enum class LearningRateSchedule { kConstant, kLinear, kCosine, kWsd };
// What moves GPU memory within a group: NCCL, or our collectives on the hosts, whose CPUs sum.
// With another framework than smp, kHost is priced as SageMaker's SMDDP.
enum class CollectivesKind { kNccl, kHost };

// How a router weighs experts: by the softmax of all scores (Mixtral, Qwen), or by their sigmoids
// (DeepSeek-V3). A softmax of the chosen scores (gpt-oss) is a normalized softmax of all.
enum class RouterKind { kSoftmax, kSigmoid };

// The tokens over which a balancing loss takes its means.
enum class BalanceOver { kMicrobatch, kSequence, kBatch };

struct ModelSpec {
  std::string name;
  std::string hf_config;  // the config.json that gave the sizes (see import.h)
  ModelFamily family = ModelFamily::kGpt2;
  Stack stack = Stack::kDecoder;
  MlpKind mlp = MlpKind::kGelu;
  GeluKind gelu = GeluKind::kTanh;  // of mlp gelu and geglu
  NormKind norm = NormKind::kLayerNorm;
  NormPlacement norm_placement = NormPlacement::kBefore;
  PositionKind position_embedding = PositionKind::kLearned;
  bool qkv_bias = true;
  bool attention_output_bias = true;
  bool mlp_bias = true;
  bool head_bias = false;
  bool qk_norm = false;  // a norm on queries and on keys
  QkNormOver qk_norm_over = QkNormOver::kHead;
  bool attention_sinks = false;    // a learnt score of each head, in the softmax's sum alone
  bool parallel_residual = false;  // attention and MLP read the same input (gpt_neox, phi)
  bool shared_norm = false;        // and one norm serves both (phi)
  // Of a gated MLP or expert: activation(min(gate, limit)) * (up + offset), where up lies within
  // the limit on both sides; limit 0 = none.
  double glu_limit = 0;
  double glu_offset = 0;
  int64_t num_layers = 0;
  int64_t hidden_size = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;     // = num_heads unless given
  int64_t head_dim = 0;         // = hidden_size / num_heads unless given
  int64_t ffn_hidden_size = 0;  // gpt2: 4 * hidden_size unless given; llama: required
  int64_t vocab_size = 0;
  int64_t max_positions = 0;  // gpt2: rows of the learned position table; llama: longest sequence
  bool tied_embeddings = false;  // gpt2: true unless given
  double norm_epsilon = 1e-5;
  double rope_theta = 10000.0;  // llama
  int64_t rotary_dim = 0;       // elements of a head that turn; 0 = all
  RopeScaling rope_scaling = RopeScaling::kNone;
  double rope_scaling_factor = 8;
  double rope_low_freq_factor = 1;  // llama3, as rope_high_freq_factor
  double rope_high_freq_factor = 4;
  int64_t rope_original_positions = 8192;  // llama3, yarn and longrope
  // longrope: what each pair's frequency is divided by, in sequences up to the original positions,
  // and in longer ones.
  std::vector<double> rope_short_factors, rope_long_factors;
  // Yarn (Peng et al. 2023, arXiv:2309.00071), with DeepSeek's mscale keys.
  double rope_beta_fast = 32;
  double rope_beta_slow = 1;
  bool rope_truncate = true;         // the range between the two ends at whole pairs
  double rope_attention_factor = 0;  // of sines and cosines; 0 = it follows from the other keys
  double rope_mscale = 0;
  double rope_mscale_all_dim = 0;
  int64_t sliding_window = 0;    // keys that a query sees, itself among them; 0 = all before it
  bool chunked_windows = false;  // windows lie side by side, and a query sees its own (Llama 4)
  int64_t full_attention_period = 0;  // every n-th layer has no window; 0 = all layers have it
  double initializer_range = 0.02;

  int64_t decoder_layers = 0;     // encoder_decoder: num_layers are the encoder's
  int64_t vocab_multiple_of = 1;  // rows of the vocabulary are padded to a multiple of this
  double attention_dropout = 0;   // on softmax weights
  double hidden_dropout = 0;      // on what enters the residual stream
  // Mixture of experts; 0 experts = dense. The first `first_dense_layers` blocks are dense, of the
  // others every `moe_layer_period`-th has experts.
  int64_t num_experts = 0;
  int64_t experts_per_token = 0;
  double expert_capacity_factor = 0;  // tokens of an expert, over its even share; 0 = all
  bool pad_experts_to_capacity = false;
  RouterKind router = RouterKind::kSoftmax;
  bool normalize_expert_weights = true;  // of a token's experts, so that their sum is 1
  double routed_scaling_factor = 1;      // of what the experts of a token put out together
  bool router_bias = false;              // of the scores
  // A bias on the scores that choose experts, and on nothing else. Each step moves it by the rate,
  // up for an expert with fewer tokens than its even share (DeepSeek-V3).
  bool router_correction_bias = false;
  double router_correction_rate = 0.001;
  double router_balance_loss = 0;  // factor of the loss that evens the experts' load
  BalanceOver router_balance_over = BalanceOver::kMicrobatch;
  double router_z_loss = 0;  // factor of the mean square of the scores' logsumexp
  // Experts in groups: a token's are of the best `expert_groups_per_token` groups alone (DeepSeek).
  int64_t expert_groups = 1;
  int64_t expert_groups_per_token = 1;
  int64_t expert_ffn_hidden_size = 0;         // = ffn_hidden_size unless given
  int64_t shared_expert_ffn_hidden_size = 0;  // 0 = no shared expert
  bool shared_expert_gate = false;            // its output is weighed by a row of its own (Qwen)
  int64_t first_dense_layers = 0;
  int64_t moe_layer_period = 1;
  int64_t num_mtp_layers = 0;    // layers that predict further tokens (DeepSeek-V3)
  double mtp_loss_factor = 0.1;  // of the mean of their losses
  // Multi-head latent attention (DeepSeek); kv_lora_rank 0 = off. head_dim is then unused.
  int64_t q_lora_rank = 0;
  int64_t kv_lora_rank = 0;
  int64_t qk_head_dim = 0;
  int64_t qk_rope_head_dim = 0;
  int64_t v_head_dim = 0;

  // A hybrid: a letter for each layer, which is one mixer with its norm (layer_letter() in
  // hybrid.h). "" = each layer is attention and an MLP.
  std::string layer_pattern;
  int64_t mamba_heads = 0;  // Mamba-2 (Dao and Gu 2024, arXiv:2405.21060)
  int64_t mamba_head_dim = 0;
  int64_t mamba_state_dim = 0;
  int64_t mamba_groups = 0;        // heads of a group share B and C
  int64_t mamba_conv_kernel = 4;   // tokens that the convolution reads
  int64_t mamba_chunk_size = 256;  // tokens between two kept states of the scan

  int64_t vision_parameters = 0;  // of a tower before the first layer, whose work is not priced

  // A list of operators in place of a transformer. The sizes above that it has then follow from it
  // (set_list_sizes() in operators.h). It reads images and ends with a cross-entropy.
  std::vector<OperatorSpec> operators;
  std::string loss = "cross_entropy";
  int64_t input_channels = 0;
  int64_t input_height = 0;
  int64_t input_width = 0;
};

// Elements of each head that rotary positions turn.
constexpr int64_t rotary_dim_of(const ModelSpec& model) {
  return model.rotary_dim > 0 ? model.rotary_dim : model.head_dim;
}

constexpr bool is_gated(MlpKind mlp) { return mlp == MlpKind::kSwiglu || mlp == MlpKind::kGeglu; }

// One collective as nccl-tests measures it: `bytes` is the full buffer of every one of `ranks`
// ranks, which an all-gather ends with and a reduce-scatter starts from; a send goes from each rank
// to the next.
struct LinkPoint {
  int64_t ranks = 0;
  int64_t bytes = 0;
  double seconds = 0;
  mesh::CollectiveOp op = mesh::CollectiveOp::kAllReduce;
};
// The calls that can be measured: those that have a price of their own.
inline constexpr mesh::CollectiveOp kPointOps[] = {
    mesh::CollectiveOp::kAllReduce,     mesh::CollectiveOp::kAllGather,
    mesh::CollectiveOp::kReduceScatter, mesh::CollectiveOp::kBroadcast,
    mesh::CollectiveOp::kAllToAll,      mesh::CollectiveOp::kReduce,
    mesh::CollectiveOp::kGather,        mesh::CollectiveOp::kScatter,
    mesh::CollectiveOp::kSend};

// One host type. Rates are per process (one accelerator or one CPU slot), links per direction.
struct ClusterSpec {
  std::string name;
  int64_t hosts = 1;
  int64_t processes_per_host = 1;
  int64_t nvlink_domain = 0;  // accelerators on one NVLink, over hosts; 0 = those of a host
  DeviceKind device = DeviceKind::kCpu;
  std::string accelerator;               // e.g. "A100-SXM4-40GB"; for people
  int64_t memory_per_process_bytes = 0;  // capacity of the accelerator, or the limit of a CPU slot
  int64_t reserved_bytes = 0;     // fixed cost of a process there: context, libraries, workspaces
  int64_t host_memory_bytes = 0;  // 0 = unknown
  bool has_bf16 = false;
  bool has_fp16 = false;
  double fp32_flops_per_s = 0;       // dense matmul peak
  double half_flops_per_s = 0;       // bf16/fp16 dense matmul peak
  double fp8_flops_per_s = 0;        // 0 = none
  double fp4_flops_per_s = 0;        // of NVFP4; 0 = none
  double matmul_efficiency = 0.5;    // share of the peak that large matmuls reach
  double fp8_matmul_efficiency = 0;  // ... of the fp8 peak; 0 = 0.8875 of matmul_efficiency
  double fp4_matmul_efficiency = 0;  // ... of the fp4 peak; 0 = that of fp8
  int64_t multiprocessors = 0;       // matmul tiles run on them in waves; 0 = not modelled
  double kernel_launch_s = 0;        // least time from one kernel's start to the next one's
  double memory_bytes_per_s = 0;
  double host_link_bytes_per_s = 0;   // accelerator <-> host memory (offload), switches shared out
  double intra_host_bytes_per_s = 0;  // one process to its peers on the host
  double intra_host_latency_s = 0;
  double inter_host_bytes_per_s = 0;  // one process to other hosts, NICs shared out
  double inter_host_latency_s = 0;
  bool inter_host_low_latency = true;      // NCCL's LL and LL128 protocols work between hosts
  double inter_host_message_s = 0;         // for each further message of a rank
  double inter_host_next_bytes_per_s = 0;  // ... to the next host alone
  // Measured collectives, which replace latency + bytes / bandwidth in the measured range.
  std::vector<LinkPoint> intra_host_points;
  std::vector<LinkPoint> inter_host_points;
  double collective_multiprocessors = 0;  // taken from matmuls by a running collective (NCCL)
  double price_per_host_hour = 0;         // 0 = unknown; in whatever currency
  // Error of predictions in measured runs of this cluster; 0 = the shipped value.
  double memory_error = 0;  // e.g. 0.05: nine runs of ten lay within 5 %
  double time_error = 0;
};

struct OptimizerSpec {
  OptimizerKind kind = OptimizerKind::kAdamW;
  LearningRateSchedule schedule = LearningRateSchedule::kCosine;
  double learning_rate = 3e-4;
  double min_learning_rate = 3e-5;
  int64_t warmup_steps = 0;
  int64_t decay_steps = 0;  // wsd: the last ones
  double momentum = 0.9;    // sgd; 0 = none, and no state for it
  bool nesterov = false;    // sgd
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  double gradient_clipping = 1.0;  // global norm; 0 = off
  MasterKind master_weights = MasterKind::kFp32;
  MomentKind momentum_dtype = MomentKind::kFp32;
  MomentKind variance_dtype = MomentKind::kFp32;
};

// When a run saves its state; see docs/checkpoints.md. A signal that asks for it always saves.
struct CheckpointSpec {
  int64_t every_steps = 0;   // 0 = not by steps; else after the last step too
  double every_minutes = 0;  // 0 = not by time
  int64_t keep = 2;          // the newest so many stay
};

// The factor on the loss that keeps fp16 gradients from vanishing: SMP's and DeepSpeed's
// parameters, under their names.
struct LossScaleSpec {
  bool dynamic = true;
  double init_scale = 65536;    // the scale itself if it is not dynamic
  double scale_factor = 2;      // factor of a fall or growth
  int64_t scale_window = 1000;  // steps without overflow before it grows
  double min_scale = 1;
  int64_t delayed_shift = 1;  // overflows before it falls
  bool raise_error_at_min_scale = true;
};

// One of several data sets that are mixed: it gives weight / (sum of the weights) of all samples.
struct MixtureSource {
  std::string name;  // "" = its path
  std::string path;
  std::optional<DataFormat> format;
  double weight = 0;  // exactly the decimal number that it prints as
  bool operator==(const MixtureSource&) const = default;
};

// Data that are only evaluated on.
struct EvaluationSet {
  std::string name;
  std::string path;
  std::optional<DataFormat> format;
  bool operator==(const EvaluationSet&) const = default;
};

// How often the loss is evaluated on text that is never trained on.
struct EvaluationSpec {
  int64_t every_steps = 0;               // 0 = never
  std::optional<int64_t> samples;        // of one evaluation; auto: global_batch
  bool pad_last_batch = false;           // fill up the last batch with samples that do not count
  std::vector<EvaluationSet> sets = {};  // instead of a part of the training data
  bool keep_best = false;                // save at the lowest loss so far; that checkpoint stays
  int64_t patience = 0;        // evaluations without improvement that end the run; 0 = never
  double min_improvement = 0;  // least fall of the loss that counts
};

// Which steps leave a timeline of every action, collective and wait; see docs/watching.md.
struct TraceSpec {
  std::vector<int64_t> steps;  // the first and the last, from 1; empty = none
};

// Low-rank adapters (Hu et al. 2021, arXiv 2106.09685) beside frozen weights; rank 0 = none.
struct LoraSpec {
  int64_t rank = 0;
  double alpha = 0;  // an adapter's output is scaled by alpha / rank; = rank unless given
  std::vector<std::string> targets = {"all_linear"};  // model/adapters.h
  double dropout = 0;                                 // on an adapter's input
  QuantizedKind quantized = QuantizedKind::kNone;
};

// Images in a text file: a line each, channels x height x width numbers and the label. 0 = as the
// model's input.
struct ImageFileSpec {
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;
  double largest = 255;  // largest number in the file: 0 to largest become -1 to 1
};

// The fusions of a layer's operations that our engine makes (program/fusions.h).
struct Fusions {
  bool bias_and_activation = true;
  bool bias_and_attention = true;
  bool branch_sum = true;
  bool sum_and_norm = true;

  bool operator==(const Fusions&) const = default;
};

struct TrainingSpec {
  int64_t sequence_length = 0;
  std::optional<int64_t> micro_batch;      // samples of one microbatch of one data-parallel rank
  std::optional<int64_t> microbatches;     // per step and data-parallel rank
  std::optional<int64_t> global_batch;     // samples of one step over all ranks
  int64_t max_tokens_per_batch = 4194304;  // 4Mi
  // The batch grows from `batch_ramp_start` by `batch_ramp_increment` samples. Each size on the way
  // must be divisible as the last one is. 0 = no ramp.
  int64_t batch_ramp_start = 0;
  int64_t batch_ramp_increment = 0;
  std::optional<Precision> precision;
  AttentionKind attention = AttentionKind::kFlash;
  std::optional<bool> accumulate_gradients_in_fp32;  // auto: as in the framework
  bool fused_loss = false;                           // cross-entropy as one compiled function
  Fp8Recipe fp8_recipe = Fp8Recipe::kDelayed;
  bool fp8_parameters = false;          // with precision: fp8, no 16-bit weights beside them
  bool compiled = false;                // torch.compile: element-wise kernels and casts are fused
  bool deterministic = false;           // larger workspaces of the matmul library
  std::optional<bool> fused_optimizer;  // the update is one kernel; auto: as in the framework
  Fusions fusions;
  OptimizerSpec optimizer;
  LossScaleSpec loss_scale;  // fp16
  LoraSpec lora;
  std::vector<std::string> frozen;  // parts that are not trained; model/frozen_parts.h
  EvaluationSpec evaluation;
  TraceSpec trace;
  int64_t steps = 0;
  uint64_t seed = 1234;
  // A file, a folder, a glob, or a prefix of files: text or tokens; "python-stdlib" = the source of
  // the standard library of the python3 on PATH.
  std::string data_path;
  std::optional<DataFormat> data_format;    // auto: told from the files
  std::vector<MixtureSource> data_sources;  // instead of data_path
  std::vector<int64_t> data_split;          // train, evaluate, keep out: in such parts; empty = all
  std::optional<int64_t> data_end_of_document;  // the token; auto: the manifest's
  std::string data_longer = "refuse";           // of documents longer than a padded sample
  std::vector<std::string> data_suffixes;       // files of a folder that count, e.g. [".py"]
  std::optional<TokenKind> data_tokens;         // auto: bytes if the vocabulary is that of bytes
  Packing data_pack = Packing::kConcatenate;
  // Files beside the tokens say which tokens count in the loss. auto: all count, and a mask that
  // exists is refused until the job says true or false.
  std::optional<bool> data_loss_mask;
  ImageFileSpec images;  // of a model that reads images
  CheckpointSpec checkpoint;
  std::vector<std::string> metrics = {"jsonl"};  // where each step's numbers go
  std::string init_from;  // folder of Hugging Face weights to start from; empty = drawn from `seed`
  std::string tokenizer;  // folder that is saved with the weights; empty = that of init_from
  std::optional<Precision> save_weights_as;  // type of the saved weights; auto: the trained ones'
};

// The kinds of layers whose matrices the tensor ranks share. Matrices of the other kinds are whole
// on each tensor rank, and all compute the same.
struct TensorKinds {
  bool attention = true;
  bool mlp = true;
  bool embedding = true;  // token embedding and head: the vocabulary

  bool all() const { return attention && mlp && embedding; }
  bool operator==(const TensorKinds&) const = default;
};

// What moves GPU memory in the groups along these axes; auto: the planner picks the cheaper one.
struct GroupCollectives {
  std::optional<CollectivesKind> tensor, shard, replica, data;
  bool operator==(const GroupCollectives&) const = default;
};

// The framework whose memory, traffic and time are predicted: one layout takes other bytes and
// seconds in each (framework.h).
struct FrameworkChoice {
  std::string name = "smp";  // of a shipped file, the path of another file, or unknown
  // What the file says. Null: what the shipped file of that name says. A plan keeps only the path
  // of another file.
  std::shared_ptr<const framework::Framework> habits = {};

  bool is_engine() const { return name == "smp"; }  // ours, which runs what is planned
};

struct ParallelSpec {
  std::optional<int64_t> pipeline_parallel_degree;
  std::optional<int64_t> tensor_parallel_degree;
  TensorKinds tensor_parallel;
  std::optional<int64_t> sharded_data_parallel_degree;
  std::optional<bool> shard_optimizer_state;  // true = optimizer_state with z = d
  std::optional<Sharding> sharding;
  std::optional<PipelineKind> pipeline;
  std::string placement_strategy = "cluster";
  std::optional<int64_t> active_microbatches;
  std::vector<int64_t> partition;                  // layers of each stage or chunk; empty = even
  std::string partition_method;                    // how the partition is found (partition.h)
  std::optional<int64_t> context_parallel_degree;  // ranks that share a sequence
  std::optional<int64_t> context_exchange_degree;  // of these, ranks that exchange heads
  std::optional<int64_t> expert_parallel_degree;   // ranks that share a layer's experts
  std::optional<int64_t> expert_tensor_degree;     // auto: as tensor_parallel_degree
  std::optional<bool>
      sequence_parallel;  // also split the activations between tensor-parallel matrices
  std::optional<int64_t> virtual_pipeline_degree;  // chunks of layers a rank holds
  std::optional<bool> activation_checkpointing;    // true = recompute: full
  std::optional<Recompute> recompute;
  std::vector<std::string> recompute_modules;              // recompute_modules.h
  std::optional<int64_t> recompute_layers;                 // of each stage; auto: all
  std::string activation_checkpointing_strategy = "each";  // checkpoint_strategy.h
  std::optional<bool> offload_activations;
  std::optional<bool> offload_optimizer;
  std::optional<bool> offload_parameters;
  bool partition_activations = false;      // each tensor rank keeps its part of a checkpoint
  int64_t activation_loading_horizon = 2;  // layers whose checkpoints are fetched ahead
  int64_t prefetch_layers = 1;             // ZeRO-3: layers (buckets of small ones) gathered ahead
  int64_t max_live_parameters = 0;         // most elements gathered at once; 0 = no bound
  int64_t param_persistence_threshold =
      0;                            // ZeRO-3: smaller tensors stay gathered until the update
  std::vector<std::string> forbid;  // e.g. "tensor_parallel_degree=8"
  FrameworkChoice framework;
  std::optional<CollectivesKind> data_collectives;  // of groups that `collectives` leaves open
  GroupCollectives collectives;
  std::optional<bool> delayed_parameter_initialization;
  bool prescaled_batch = true;          // a tensor group reads one batch, which micro_batch counts
  std::optional<int64_t> bucket_bytes;  // of gradients; auto: bucket_size.h
  std::optional<int64_t> shard_bucket_bytes;  // of sharded gradients and weights
};

struct JobSpec {
  std::string name;
  ModelSpec model;
  ClusterSpec cluster;
  TrainingSpec training;
  ParallelSpec parallel;
};

}  // namespace smp
