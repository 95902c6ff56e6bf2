#pragma once

#include <string>

#include "smp/plan/jobfile/job_format.h"
#include "smp/plan/jobfile/job_reader.h"

// Job files as they are written.
namespace smp::testing {

inline const std::string kEverything = R"(name: everything
model:
  name: "Llama, small: 1"
  hf_config: config.json
  family: llama
  stack: decoder
  mlp: geglu
  gelu: erf
  glu_limit: 7
  glu_offset: 1
  norm: layernorm
  norm_placement: both
  position_embedding: rotary
  qkv_bias: true
  attention_output_bias: true
  mlp_bias: true
  head_bias: true
  qk_norm: true
  qk_norm_over: all_heads
  attention_sinks: true
  parallel_residual: true
  shared_norm: true
  num_layers: 5
  hidden_size: 96
  num_heads: 6
  num_kv_heads: 2
  head_dim: 20
  ffn_hidden_size: 200
  vocab_size: 1009
  vocab_multiple_of: 128
  max_positions: 4096
  tied_embeddings: true
  norm_epsilon: 1e-06
  rope_theta: 500000
  rotary_dim: 0
  rope_scaling: llama3
  rope_scaling_factor: 16
  rope_low_freq_factor: 2
  rope_high_freq_factor: 8
  rope_original_positions: 4096
  sliding_window: 512
  chunked_windows: true
  full_attention_period: 2
  initializer_range: 0.01
  attention_dropout: 0.1
  hidden_dropout: 0.2
  num_experts: 8
  experts_per_token: 2
  router: sigmoid
  normalize_expert_weights: false
  routed_scaling_factor: 2.5
  router_bias: true
  router_correction_bias: true
  router_correction_rate: 0.01
  router_balance_loss: 0.02
  router_balance_over: sequence
  router_z_loss: 0.0001
  expert_groups: 4
  expert_groups_per_token: 2
  expert_capacity_factor: 1.25
  pad_experts_to_capacity: true
  expert_ffn_hidden_size: 50
  shared_expert_ffn_hidden_size: 60
  shared_expert_gate: true
  first_dense_layers: 1
  moe_layer_period: 2
  num_mtp_layers: 1
  mtp_loss_factor: 0.25
  kv_lora_rank: 32
  q_lora_rank: 48
  qk_head_dim: 16
  qk_rope_head_dim: 8
  v_head_dim: 12
  vision_parameters: 1000
cluster:
  name: p4d.24xlarge
  hosts: 2
  processes_per_host: 8
  nvlink_domain: 16
  device: cuda
  accelerator: A100-SXM4-40GB
  memory_per_process: 42949672960
  reserved_memory: 1073741824
  host_memory: 1236950581248
  has_bf16: true
  has_fp16: true
  fp32_flops_per_s: 19500000000000
  half_flops_per_s: 312000000000000
  fp8_flops_per_s: 624000000000000
  fp4_flops_per_s: 0
  matmul_efficiency: 0.6
  fp8_matmul_efficiency: 0.5
  fp4_matmul_efficiency: 0
  multiprocessors: 108
  kernel_launch_s: 5e-06
  memory_bytes_per_s: 1555000000000
  host_link_bytes_per_s: 12000000000
  intra_host_bytes_per_s: 3e+17
  intra_host_latency_s: 3e-06
  inter_host_bytes_per_s: 6250000000
  inter_host_latency_s: 2e-05
  inter_host_low_latency: false
  inter_host_message_s: 3e-06
  inter_host_next_bytes_per_s: 12500000000
  intra_host_points: [{ranks: 8, bytes: 1048576, seconds: 0.0001}, {ranks: 8, bytes: 2097152, seconds: 0.00015}]
  inter_host_points: [{ranks: 16, bytes: 1024, seconds: 2.5e-05, op: reduce_scatter}]
  collective_multiprocessors: 24
  price_per_host_hour: 32.77
  memory_error: 0.05
  time_error: 0.1
training:
  sequence_length: 2048
  micro_batch: 2
  microbatches: 8
  global_batch: 64
  max_tokens_per_batch: 4000000
  batch_ramp_start: 16
  batch_ramp_increment: 16
  precision: bf16
  attention: unfused
  accumulate_gradients_in_fp32: true
  fused_loss: true
  fp8_parameters: false
  compiled: true
  deterministic: true
  fused_optimizer: true
  steps: 100
  seed: 18446744073709551615
  init_from: /models/gpt2
  tokenizer: /tokenizers/gpt2
  save_weights_as: bf16
  metrics: [tensorboard]
  frozen: []
  optimizer:
    kind: adamw
    schedule: wsd
    learning_rate: 0.0001
    min_learning_rate: 0
    warmup_steps: 10
    decay_steps: 20
    beta1: 0.8
    beta2: 0.99
    epsilon: 1e-10
    weight_decay: 0.01
    gradient_clipping: 0.5
    master_weights: remainder
    momentum_dtype: bf16
    variance_dtype: fp8
  lora:
    rank: 8
    alpha: 16
    targets: [attention.output, mlp.down]
    dropout: 0.05
    quantized: nf4
  data:
    path: "/data/my text"
    format: text
    sources: []
    split: [97, 2, 1]
    end_of_document: 3
    suffixes: [.py, "a b", "true"]
    tokens: bytes
    pack: pad
    longer: truncate
    loss_mask: true
  checkpoint:
    every_steps: 50
    every_minutes: 12.5
    keep: 3
  evaluation:
    every_steps: 50
    samples: 128
    pad_last_batch: true
    sets: [{name: "of code", path: code-val, format: llmc}, {name: wiki, path: "a b"}]
    keep_best: true
    patience: 4
    min_improvement: 0.125
  trace:
    steps: [10, 12]
parallel:
  pipeline_parallel_degree: 2
  tensor_parallel_degree: 2
  sharded_data_parallel_degree: 4
  context_parallel_degree: 1
  expert_parallel_degree: 4
  expert_tensor_degree: 1
  sequence_parallel: true
  shard_optimizer_state: true
  sharding: optimizer_state
  pipeline: virtual
  virtual_pipeline_degree: 2
  placement_strategy: TPD
  active_microbatches: 3
  partition: [3, 2]
  activation_checkpointing: true
  recompute: full
  recompute_layers: 2
  activation_checkpointing_strategy: group_3
  offload_activations: false
  partition_activations: false
  activation_loading_horizon: 3
  offload_optimizer: true
  offload_parameters: false
  prefetch_layers: 2
  max_live_parameters: 3000000
  param_persistence_threshold: 100000
  forbid: ["tensor_parallel_degree=8", "pipeline=simple|zb_v"]
  framework: megatron-core
  data_collectives: host
  delayed_parameter_initialization: true
  prescaled_batch: true
  bucket_bytes: 1000000
  shard_bucket_bytes: 500000
  tensor_parallel:
    attention: true
    mlp: true
    embedding: false
)";

// Keys that only a hybrid has, as they are written.
inline const std::string kYarn =
    "  rope_beta_fast: 32\n  rope_beta_slow: 1\n  rope_truncate: true\n  rope_attention_factor: "
    "0\n  rope_mscale: 0\n"
    "  rope_mscale_all_dim: 0\n";
inline const std::string kLongRope =
    "  rope_short_factors: [1.05, 1.2]\n  rope_long_factors: [2, 3.5]\n";
inline const std::string kMamba =
    "  layer_pattern: \"M-*E\"\n  mamba_heads: 8\n  mamba_head_dim: 16\n  mamba_state_dim: 32\n"
    "  mamba_groups: 2\n  mamba_conv_kernel: 3\n  mamba_chunk_size: 64\n";
inline const std::string kHybrid =
    "model:\n  num_layers: 4\n  hidden_size: 64\n  num_heads: 4\n  vocab_size: 256\n"
    "  num_experts: 4\n  experts_per_token: 2\n" +
    kMamba;

// Keys that only an encoder with a decoder has.
inline const std::string kBoth =
    "model:\n  stack: encoder_decoder\n  num_layers: 4\n  decoder_layers: 2\n"
    "  hidden_size: 128\n  num_heads: 4\n  vocab_size: 256\n";

// Keys that only SGD and fp16 have, as they are written.
inline const std::string kFp16Sgd =
    "    momentum: 0.9\n    nesterov: false\n    weight_decay: 0\n    gradient_clipping: 1\n"
    "    master_weights: fp32\n"
    "  loss_scale:\n    dynamic: true\n    init_scale: 65536\n    scale_factor: 2\n"
    "    scale_window: 1000\n    min_scale: 1\n    delayed_shift: 1\n"
    "    raise_error_at_min_scale: true\n";

// Keys that only GPUs have.
inline const std::string kByGroup =
    "  collectives:\n    tensor: auto\n    shard: nccl\n    replica: host\n    data: auto\n";

inline std::string rewritten(const std::string& text, int indent = 0) {
  return jobfile::write_job_yaml(jobfile::read_job({{"job.yaml", text}}), indent);
}

inline const std::string kSmall =
    "model:\n  num_layers: 4\n  hidden_size: 128\n  num_heads: 4\n  vocab_size: 256\n";

}  // namespace smp::testing
