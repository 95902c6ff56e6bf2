#include "field_table.h"

#include <unordered_map>

// The member of a JobSpec that a key sets.
#define SMP_AT(member) \
  [](JobSpec & spec) -> auto& { return spec.member; }

namespace smp {

namespace {

// Bounds that no real job reaches and whose products stay within 64 bits.
constexpr double kMostLayers = 1 << 16;
constexpr double kMostWidth = 1 << 20;  // hidden sizes, heads, ranks
constexpr double kMostRows = 1 << 28;   // vocabulary, positions
constexpr double kMostSamples = 1 << 28;
constexpr double kMostBytes = int64_t{1} << 60;
constexpr double kMostSteps = 1e12;
constexpr auto kLlama = ModelFamily::kLlama;

constexpr std::string_view kModel = "model";
constexpr std::string_view kCluster = "cluster";
constexpr std::string_view kTraining = "training";
constexpr std::string_view kOptimizer = "training.optimizer";
constexpr std::string_view kData = "training.data";
constexpr std::string_view kParallel = "parallel";

void add_model_fields(std::vector<Field>& out) {
  const std::vector<Field> fields = {
      {kModel, "name", SMP_AT(model.name), "for people"},
      {kModel,
       "family",
       SMP_AT(model.family),
       "the kind of layers: gpt2 (learned positions, LayerNorm, GELU) or llama (RoPE, RMSNorm, "
       "SwiGLU, grouped KV heads)",
       {.also = {"model_type"}}},
      {kModel,
       "num_layers",
       SMP_AT(model.num_layers),
       "transformer layers",
       {.required = true,
        .min = 1,
        .max = kMostLayers,
        .also = {"n_layer", "n_layers", "layers", "num_hidden_layers"}}},
      {kModel,
       "hidden_size",
       SMP_AT(model.hidden_size),
       "width of the residual stream",
       {.required = true, .min = 1, .max = kMostWidth, .also = {"n_embd", "d_model", "dim"}}},
      {kModel,
       "num_heads",
       SMP_AT(model.num_heads),
       "attention heads",
       {.required = true,
        .min = 1,
        .max = kMostWidth,
        .also = {"n_head", "n_heads", "num_attention_heads"}}},
      {kModel,
       "num_kv_heads",
       SMP_AT(model.num_kv_heads),
       "key and value heads; fewer than num_heads is grouped-query attention (llama)",
       {.min = 1,
        .max = kMostWidth,
        .computed = "num_heads",
        .also = {"n_kv_heads", "num_key_value_heads", "num_query_groups"}}},
      {kModel,
       "head_dim",
       SMP_AT(model.head_dim),
       "width of one head",
       {.min = 1, .max = kMostWidth, .computed = "hidden_size / num_heads"}},
      {kModel,
       "ffn_hidden_size",
       SMP_AT(model.ffn_hidden_size),
       "width inside the feed-forward layer",
       {.required_by = kLlama,
        .min = 1,
        .max = kMostWidth,
        .computed = "gpt2: 4 x hidden_size; llama: required",
        .also = {"intermediate_size", "n_inner", "d_ff"}}},
      {kModel,
       "vocab_size",
       SMP_AT(model.vocab_size),
       "tokens of the vocabulary",
       {.required = true, .min = 2, .max = kMostRows}},
      {kModel,
       "max_positions",
       SMP_AT(model.max_positions),
       "gpt2: rows of the learned position table; llama: the longest sequence",
       {.min = 1,
        .max = kMostRows,
        .computed = "gpt2: 1024; llama: training.sequence_length, else 4096",
        .also = {"n_positions", "max_position_embeddings"}}},
      {kModel,
       "tied_embeddings",
       SMP_AT(model.tied_embeddings),
       "the head uses the token embedding's weights",
       {.computed = "gpt2: true; llama: false", .also = {"tie_word_embeddings"}}},
      {kModel,
       "norm_epsilon",
       SMP_AT(model.norm_epsilon),
       "added to the variance in each norm",
       {.max = 1,
        .min_excluded = true,
        .also = {"layer_norm_epsilon", "rms_norm_eps", "norm_eps"}}},
      {kModel,
       "rope_theta",
       SMP_AT(model.rope_theta),
       "base of the rotary embedding (llama)",
       {.min_excluded = true, .only = kLlama}},
      {kModel,
       "initializer_range",
       SMP_AT(model.initializer_range),
       "standard deviation of the first weights",
       {.max = 10}},
  };
  out.insert(out.end(), fields.begin(), fields.end());
}

void add_cluster_fields(std::vector<Field>& out) {
  const std::vector<Field> fields = {
      {kCluster, "name", SMP_AT(cluster.name), "for people"},
      {kCluster,
       "hosts",
       SMP_AT(cluster.hosts),
       "hosts of this kind",
       {.min = 1, .max = kMostWidth, .also = {"nodes", "num_nodes", "nnodes"}}},
      {kCluster,
       "processes_per_host",
       SMP_AT(cluster.processes_per_host),
       "ranks on each host; a rank drives one accelerator, or one CPU slot",
       {.min = 1, .max = 4096, .also = {"gpus_per_node", "nproc_per_node"}}},
      {kCluster, "device", SMP_AT(cluster.device), "what the ranks compute on"},
      {kCluster, "accelerator", SMP_AT(cluster.accelerator),
       "its name, for people, e.g. A100-SXM4-40GB"},
      {kCluster,
       "memory_per_process",
       SMP_AT(cluster.memory_per_process_bytes),
       "memory of the accelerator, or the limit of a CPU slot; 0 = no limit (cpu only)",
       {.unit = Unit::kBytes, .max = kMostBytes, .also = {"memory_per_process_bytes", "memory"}}},
      {kCluster,
       "reserved_memory",
       SMP_AT(cluster.reserved_bytes),
       "fixed cost of a process there: context, libraries, workspaces",
       {.unit = Unit::kBytes, .max = kMostBytes, .also = {"reserved_bytes"}}},
      {kCluster,
       "host_memory",
       SMP_AT(cluster.host_memory_bytes),
       "memory of a host, which offloading uses; 0 = unknown",
       {.unit = Unit::kBytes, .max = kMostBytes, .also = {"host_memory_bytes"}}},
      {kCluster, "has_bf16", SMP_AT(cluster.has_bf16), "bf16 matmuls at half_flops_per_s"},
      {kCluster, "has_fp16", SMP_AT(cluster.has_fp16), "fp16 matmuls at half_flops_per_s"},
      {kCluster,
       "fp32_flops_per_s",
       SMP_AT(cluster.fp32_flops_per_s),
       "peak of dense fp32 matmuls of one rank; 0 = unknown",
       {.unit = Unit::kFlopsPerS}},
      {kCluster,
       "half_flops_per_s",
       SMP_AT(cluster.half_flops_per_s),
       "peak of dense bf16 or fp16 matmuls of one rank; 0 = unknown",
       {.unit = Unit::kFlopsPerS}},
      {kCluster,
       "matmul_efficiency",
       SMP_AT(cluster.matmul_efficiency),
       "share of the peak that large matmuls reach",
       {.max = 1, .min_excluded = true}},
      {kCluster,
       "memory_bytes_per_s",
       SMP_AT(cluster.memory_bytes_per_s),
       "memory bandwidth of one rank; 0 = unknown",
       {.unit = Unit::kBytesPerS}},
      {kCluster,
       "host_link_bytes_per_s",
       SMP_AT(cluster.host_link_bytes_per_s),
       "accelerator to host memory, per direction (offload); 0 = unknown",
       {.unit = Unit::kBytesPerS}},
      {kCluster,
       "intra_host_bytes_per_s",
       SMP_AT(cluster.intra_host_bytes_per_s),
       "one rank to its peers on the host, per direction; 0 = unknown",
       {.unit = Unit::kBytesPerS}},
      {kCluster,
       "intra_host_latency_s",
       SMP_AT(cluster.intra_host_latency_s),
       "start of a transfer inside a host",
       {.unit = Unit::kSeconds}},
      {kCluster,
       "inter_host_bytes_per_s",
       SMP_AT(cluster.inter_host_bytes_per_s),
       "one rank to other hosts, per direction, the host's links shared out; 0 = unknown",
       {.unit = Unit::kBytesPerS}},
      {kCluster,
       "inter_host_latency_s",
       SMP_AT(cluster.inter_host_latency_s),
       "start of a transfer between hosts",
       {.unit = Unit::kSeconds}},
  };
  out.insert(out.end(), fields.begin(), fields.end());
}

void add_training_fields(std::vector<Field>& out) {
  const std::vector<Field> fields = {
      {kTraining,
       "sequence_length",
       SMP_AT(training.sequence_length),
       "tokens of one sample",
       {.min = 1,
        .max = kMostRows,
        .computed = "model.max_positions",
        .also = {"seq_len", "seq_length", "n_ctx"}}},
      {kTraining,
       "micro_batch",
       SMP_AT(training.micro_batch),
       "samples of one microbatch of one data-parallel rank",
       {.min = 1,
        .max = kMostSamples,
        .also = {"micro_batch_size", "train_micro_batch_size_per_gpu"}}},
      {kTraining,
       "microbatches",
       SMP_AT(training.microbatches),
       "microbatches of one step of one data-parallel rank",
       {.min = 1,
        .max = kMostSamples,
        .also = {"gradient_accumulation_steps", "num_microbatches"}}},
      {kTraining,
       "global_batch",
       SMP_AT(training.global_batch),
       "samples of one step over all ranks = micro_batch x microbatches x data-parallel degree",
       {.min = 1, .max = kMostSamples, .also = {"global_batch_size", "train_batch_size"}}},
      {kTraining,
       "max_tokens_per_batch",
       SMP_AT(training.max_tokens_per_batch),
       "limit of global_batch x sequence_length",
       {.unit = Unit::kTokens, .min = 1, .max = kMostBytes}},
      {kTraining, "precision", SMP_AT(training.precision),
       "of activations and matmuls; bf16 and fp16 keep fp32 master weights"},
      {kTraining,
       "steps",
       SMP_AT(training.steps),
       "optimizer steps; 0 = plan only",
       {.max = kMostSteps, .also = {"max_steps", "train_iters"}}},
      {kTraining, "seed", SMP_AT(training.seed), "of weights and data order"},
      {kOptimizer,
       "learning_rate",
       SMP_AT(training.optimizer.learning_rate),
       "AdamW's, after the warm-up",
       {.max = 1000, .also = {"lr"}}},
      {kOptimizer,
       "min_learning_rate",
       SMP_AT(training.optimizer.min_learning_rate),
       "at the end of the cosine",
       {.max = 1000, .computed = "learning_rate / 10", .also = {"min_lr"}}},
      {kOptimizer,
       "warmup_steps",
       SMP_AT(training.optimizer.warmup_steps),
       "steps of linear warm-up",
       {.max = kMostSteps}},
      {kOptimizer,
       "beta1",
       SMP_AT(training.optimizer.beta1),
       "decay of the first moment",
       {.max = 1, .max_excluded = true}},
      {kOptimizer,
       "beta2",
       SMP_AT(training.optimizer.beta2),
       "decay of the second moment",
       {.max = 1, .max_excluded = true}},
      {kOptimizer,
       "epsilon",
       SMP_AT(training.optimizer.epsilon),
       "added to the root of the second moment",
       {.max = 1, .min_excluded = true}},
      {kOptimizer,
       "weight_decay",
       SMP_AT(training.optimizer.weight_decay),
       "decoupled; not on norms and biases",
       {.max = 10}},
      {kOptimizer,
       "gradient_clipping",
       SMP_AT(training.optimizer.gradient_clipping),
       "largest global norm of the gradient; 0 = off",
       {.also = {"clip_grad", "max_grad_norm", "grad_clip"}}},
      {kData, "path", SMP_AT(training.data_path),
       "a text file or a folder of them; python-stdlib = the source of the standard library of the "
       "python3 on PATH"},
      {kData, "suffixes", SMP_AT(training.data_suffixes),
       "files of a folder that count, e.g. [.py, .md]; [] = all"},
  };
  out.insert(out.end(), fields.begin(), fields.end());
}

void add_parallel_fields(std::vector<Field>& out) {
  const std::vector<Field> fields = {
      {kParallel,
       "pipeline_parallel_degree",
       SMP_AT(parallel.pipeline_parallel_degree),
       "stages of the pipeline (p)",
       {.min = 1, .max = kMostWidth, .also = {"partitions", "pp", "pipeline_model_parallel_size"}}},
      {kParallel,
       "tensor_parallel_degree",
       SMP_AT(parallel.tensor_parallel_degree),
       "ranks that share each layer's matrices (t)",
       {.min = 1, .max = kMostWidth, .also = {"tp", "tensor_model_parallel_size"}}},
      {kParallel,
       "sharded_data_parallel_degree",
       SMP_AT(parallel.sharded_data_parallel_degree),
       "ranks over which one copy of the sharded state is spread (z); above 1 alone it means "
       "sharding: parameters",
       {.min = 1, .max = kMostWidth, .also = {"hybrid_shard_degree", "sdp"}}},
      {kParallel, "shard_optimizer_state", SMP_AT(parallel.shard_optimizer_state),
       "true = sharding: optimizer_state over all data-parallel ranks"},
      {kParallel, "sharding", SMP_AT(parallel.sharding),
       "what is spread over the shard axis: ZeRO stage 0, 1, 2, 3"},
      {kParallel, "pipeline", SMP_AT(parallel.pipeline),
       "simple = all forward, then all backward (GPipe); interleaved = 1F1B"},
      {kParallel,
       "placement_strategy",
       SMP_AT(parallel.placement_strategy),
       "order of the axes over ranks, the right-most varying fastest; cluster = DPT, spread = TPD",
       {.words = {"cluster", "spread", "DPT", "DTP", "PDT", "PTD", "TDP", "TPD"}}},
      {kParallel,
       "active_microbatches",
       SMP_AT(parallel.active_microbatches),
       "most microbatches in flight in the pipeline",
       {.min = 1, .max = kMostSamples}},
      {kParallel,
       "partition",
       SMP_AT(parallel.partition),
       "layers of each stage, e.g. [3, 3, 2]; auto = as even as possible",
       {.min = 1, .max = kMostLayers}},
      {kParallel, "activation_checkpointing", SMP_AT(parallel.activation_checkpointing),
       "keep the input of each layer alone and compute the rest again in the backward pass"},
      {kParallel, "offload_activations", SMP_AT(parallel.offload_activations),
       "move what is kept to host memory"},
      {kParallel, "delayed_parameter_initialization",
       SMP_AT(parallel.delayed_parameter_initialization),
       "each rank draws only the weights it holds"},
      {kParallel, "prescaled_batch", SMP_AT(parallel.prescaled_batch),
       "all ranks of a tensor group read the same samples, and micro_batch counts those of the "
       "group; false (SMP's default: of each rank) only where tensor_parallel_degree is 1, which "
       "is "
       "the same"},
      {kParallel,
       "bucket_bytes",
       SMP_AT(parallel.bucket_bytes),
       "gradients that one reduction carries",
       {.unit = Unit::kBytes, .min = 1, .max = kMostBytes, .also = {"bucket_cap_mb"}}},
  };
  out.insert(out.end(), fields.begin(), fields.end());
}

}  // namespace

const std::vector<Section>& job_sections() {
  static const std::vector<Section> kSections = {
      {"", "the job itself"},
      {kModel, "the model's sizes (required)"},
      {kCluster, "the hosts; rates are per rank, links per direction"},
      {kTraining, "batch, precision, length"},
      {kOptimizer, "AdamW with decoupled decay, warm-up and cosine"},
      {kData, "the text to train on"},
      {kParallel, "the layout; each key is auto (the planner chooses) or pinned"},
  };
  return kSections;
}

const std::vector<Field>& job_fields() {
  static const std::vector<Field> kFields = [] {
    std::vector<Field> out = {{"",
                               "name",
                               SMP_AT(name),
                               "of the job; names its run folder",
                               {.computed = "the first file's name", .is_file_name = true}}};
    add_model_fields(out);
    add_cluster_fields(out);
    add_training_fields(out);
    add_parallel_fields(out);
    return out;
  }();
  return kFields;
}

std::string joined_path(std::string_view section, std::string_view key) {
  return section.empty() ? std::string(key) : std::string(section) + "." + std::string(key);
}

std::string path_of(const Field& field) { return joined_path(field.section, field.key); }

const Field* find_field(std::string_view path) {
  static const std::unordered_map<std::string, const Field*> kByPath = [] {
    std::unordered_map<std::string, const Field*> out;
    for (const Field& field : job_fields()) out.emplace(path_of(field), &field);
    return out;
  }();
  const auto found = kByPath.find(std::string(path));
  return found == kByPath.end() ? nullptr : found->second;
}

const Section* find_section(std::string_view path) {
  for (const Section& section : job_sections()) {
    if (section.path == path) return &section;
  }
  return nullptr;
}

}  // namespace smp
