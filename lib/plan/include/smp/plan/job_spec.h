#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "smp/plan/dtype.h"

// A JobSpec is what a user asks for: model.yaml after strict parsing, before anything is chosen.
// An empty optional means "auto": the planner decides. Plain data; no invariants but those the
// parser has checked (see job_reader.h).
namespace smp {

enum class ModelFamily { kGpt2, kLlama };
enum class DeviceKind { kCpu, kCuda };
enum class Precision { kFp32, kFp64, kBf16, kFp16 };
enum class Sharding { kNone, kOptimizerState, kGradients, kParameters };  // ZeRO 0, 1, 2, 3
enum class PipelineKind { kSimple, kInterleaved };  // all forward then all backward; 1F1B

struct ModelSpec {
  std::string name;
  ModelFamily family = ModelFamily::kGpt2;
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
  double initializer_range = 0.02;
};

// One host type. Rates are per process (one accelerator or one CPU slot), links per direction.
struct ClusterSpec {
  std::string name;
  int64_t hosts = 1;
  int64_t processes_per_host = 1;
  DeviceKind device = DeviceKind::kCpu;
  std::string accelerator;               // e.g. "A100-SXM4-40GB"; for people
  int64_t memory_per_process_bytes = 0;  // capacity of the accelerator, or the limit of a CPU slot
  int64_t reserved_bytes = 0;     // fixed cost of a process there: context, libraries, workspaces
  int64_t host_memory_bytes = 0;  // 0 = unknown
  bool has_bf16 = false;
  bool has_fp16 = false;
  double fp32_flops_per_s = 0;     // dense matmul peak
  double half_flops_per_s = 0;     // bf16/fp16 dense matmul peak
  double matmul_efficiency = 0.5;  // share of the peak that large matmuls reach
  double memory_bytes_per_s = 0;
  double host_link_bytes_per_s = 0;   // accelerator <-> host memory (offload)
  double intra_host_bytes_per_s = 0;  // one process to its peers on the host
  double intra_host_latency_s = 0;
  double inter_host_bytes_per_s = 0;  // one process to other hosts, NICs shared out
  double inter_host_latency_s = 0;
};

struct OptimizerSpec {
  double learning_rate = 3e-4;
  double min_learning_rate = 3e-5;
  int64_t warmup_steps = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  double gradient_clipping = 1.0;  // global norm; 0 = off
};

struct TrainingSpec {
  int64_t sequence_length = 0;
  std::optional<int64_t> micro_batch;      // samples of one microbatch of one data-parallel rank
  std::optional<int64_t> microbatches;     // per step and data-parallel rank
  std::optional<int64_t> global_batch;     // samples of one step over all ranks
  int64_t max_tokens_per_batch = 4194304;  // 4Mi
  std::optional<Precision> precision;
  OptimizerSpec optimizer;
  int64_t steps = 0;
  uint64_t seed = 1234;
  std::string data_path;  // file or folder of text; "python-stdlib" = the source of
                          // the standard library of the python3 on PATH
  std::vector<std::string> data_suffixes;  // files of a folder that count, e.g. [".py"]
};

struct ParallelSpec {
  std::optional<int64_t> pipeline_parallel_degree;
  std::optional<int64_t> tensor_parallel_degree;
  std::optional<int64_t> sharded_data_parallel_degree;
  std::optional<bool> shard_optimizer_state;  // true = optimizer_state with z = d
  std::optional<Sharding> sharding;
  std::optional<PipelineKind> pipeline;
  std::string placement_strategy = "cluster";
  std::optional<int64_t> active_microbatches;
  std::vector<int64_t> partition;  // layers of each stage; empty = even
  std::optional<bool> activation_checkpointing;
  std::optional<bool> offload_activations;
  std::optional<bool> delayed_parameter_initialization;
  bool prescaled_batch = true;      // a tensor group reads one batch, which micro_batch counts
  int64_t bucket_bytes = 25 << 20;  // gradient bucket; PyTorch DDP's cap
};

struct JobSpec {
  std::string name;
  ModelSpec model;
  ClusterSpec cluster;
  TrainingSpec training;
  ParallelSpec parallel;
};

}  // namespace smp
