#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "smp/plan/spec/job_spec.h"

// A Framework is what one file of configs/frameworks says: the habits of a framework that decide
// the bytes and the seconds of a layout. docs/frameworks.md has each key, framework_fields.cpp
// where it goes. Plain data; any thread.
namespace smp::framework {

// Bytes of one logit: most in the loss's forward, kept until its backward, most in that.
struct LogitBytes {
  double forward = 0;
  double kept = 0;
  double backward = 0;
};

// How a framework differs from others in memory and time, as switches. Each file says all of them:
// the values here are those of a model that no file has filled.
struct FrameworkModel {
  bool fp32_gradients_with_bf16 = false;  // main gradients in fp32 beside bf16 weights
  bool fp32_gradients_with_fp16 = false;
  bool gradient_copy_in_fp32 = false;       // with fp16: an fp32 copy beside the 16-bit gradients
  bool gradient_copy_at_step_only = false;  // made by the step, gone when it ends
  // Sums in fp32 lie unsharded beside bf16 gradients, up to ZeRO-1 (DeepSpeed's BF16_Optimizer).
  bool fp32_sum_beside_gradients = false;
  bool fp32_weights = false;             // FSDP: shards are fp32, 16-bit weights live when gathered
  bool flat_gradient_buffer = false;     // all gradients live in one buffer from start to end
  bool tied_copy_has_optimizer = false;  // the last stage's copy of a tied table has a state
  bool frees_sent_outputs = false;       // what went to the next stage is not kept
  bool context_shards_states = true;     // context-parallel ranks share shards as data ranks do
  int64_t bucket_elements = 0;           // of one gradient reduction
  int64_t all_gather_bucket_elements = 0;  // of one gather of updated weights
  bool gathers_ends_with_model = false;    // ZeRO-3: embedding and head stay whole all the while
  // ZeRO-3: weights stay whole that are needed again before so many elements more are gathered; 0 =
  // one block, and prefetch_layers more.
  int64_t reuse_elements = 0;
  // ZeRO-3's buckets of gradients and of weights fetched ahead hold no more than a matrix of
  // hidden_size x hidden_size.
  bool small_shard_buckets = false;
  bool fetches_checkpoints_late = false;  // offloaded ones come back when their layer's turn comes
  double fixed_bytes = 0;                 // context and libraries of a process
  double communicator_bytes = 0;          // of each communicator that a rank is in
  double fragmentation = 0;               // reserved / allocated - 1
  bool overlaps_data_reduction = false;   // with the backward pass
  // But not of a pipeline's gradients, nor of those that are not sharded.
  bool plain_reductions_wait = false;
  bool waits_for_sends = false;  // a stage computes nothing while it sends to its neighbour
  // Share of its work that a stage between two others loses in waiting for both of them.
  double neighbour_wait = 0;
  bool overlaps_parameter_gather = false;
  bool reduces_everywhere = false;  // ZeRO-1: gradients are all-reduced, though each is owned once
  bool owners_broadcast = false;    // ZeRO-1, 2: each owner of tensors sends its updated weights
  // Of ZeRO-3's gathers and reductions between hosts: the share of a host's network that they
  // reach, however many of their ranks are on it, and of their time what computing can hide.
  double gather_share = 1;
  double gathers_hidden = 1;
  // Operators that the processor launches for a block's forward; a backward has twice as many.
  double operators_per_block = 100;
  // Operators that a block with experts launches besides: routing, permuting, exchanging.
  double routing_operators = 300;
  // Matmul rates from Hopper on, as multiples of the cluster's: of 16 bits, and of fp8 besides.
  double hopper_matmul_rate = 1;
  double fp8_matmul_rate = 1;
  // Share of the matmul rate that fused attention reaches, causal halves not counted.
  double attention_forward_rate = 0.36;
  double attention_backward_rate = 0.29;
  double tensor_hidden = 0;      // share of messages of sequence parallelism that matmuls hide
  double tensor_crossing_s = 0;  // of each message of a tensor group, for each border of hosts
  // Seconds of a block's forward and backward, for each hop of its tensor group's ring, that its
  // messages wait where the pipeline crosses hosts.
  double pipeline_crossing_s = 0;
  // Whole tensors [tokens, hidden] of each block and microbatch that asynchronous messages of
  // tensor parallelism hold while the processor launches ahead of the accelerator.
  double held_by_messages = 0;
  // Whether what experts put out is kept for the gradient of the router's weights; not where those
  // are applied inside the experts.
  bool keeps_expert_outputs = true;
  double routed_tokens = 1;              // of the fullest rank's experts, over the mean
  bool fused_gate = true;                // activation and product of a gated MLP are one kernel
  bool fused_kernels = true;             // norm, bias + activation, softmax; else each its own pass
  bool transformer_engine = false;       // its fused layers
  bool repeats_kv_heads = false;         // keys and values are copied to every query head
  bool selective_per_operation = false;  // selective recompute keeps every other matmul's output
  // Bytes of a parameter that a step's update needs besides: copies of gradients, denominators.
  double step_bytes = 0;
  double step_bytes_unfused = 4;  // beside them, without fused kernels: torch.optim's denominators
  bool fused_optimizer = true;
  bool fused_weight_gradients = true;  // matmuls add to the gradient buffer themselves
  bool fp32_logits = true;             // logits are copied to fp32 for the loss
  LogitBytes logit{6, 4, 6};           // fp32 loss of 16-bit logits
  LogitBytes fused_logit{10, 4, 6};    // with training.fused_loss
  std::string rank_order = "DPT";      // with placement_strategy: cluster, the fastest axis last
};

// The schedules, kinds of sharding and settings that a framework has. The search chooses no others
// for it.
struct FrameworkSupport {
  std::vector<PipelineKind> schedules;
  std::vector<Sharding> shardings;
  std::vector<MasterKind> master_weights;
  std::vector<MomentKind> moments;
  bool fp8_parameters = false;
  bool sharded_pipelines = true;  // ZeRO-2 and 3 with stages
  bool sequence_parallel = true;
  bool context = true;
  bool experts = true;
  bool offload_activations = true;
  bool offload_optimizer = true;
  bool offload_parameters = true;
  bool recompute_modules = false;  // parallel.recompute_modules
  bool spread_placement = true;    // stages lie on one host or apart, as placement_strategy says
  bool smddp = false;              // SageMaker's library may do the collectives of data parallelism
};

// What its users run where a published row does not say.
struct UsualSettings {
  double dropout = 0;                     // of models with learned positions
  int64_t vocab_multiple_of = 1;          // rows of the vocabulary, times the tensor degree
  bool sequence_parallel = false;         // with tensor parallelism
  bool fp8_parameters = false;            // with fp8, weights are gathered in fp8
  bool remainder_master_weights = false;  // with bf16
  bool recomputes_fewest_layers = false;  // of each stage, where a run does not fit otherwise
  bool cuts_by_matmuls = false;  // stages are cut by the matmuls of blocks and head, not by blocks
  bool fused_adapters = false;   // LoRA: one adapter for query, key and value, one for gate and up
  bool unnamed = false;          // published runs leave out its name
};

// Measured / predicted of published runs: nine of ten lie between low and high.
struct ResidualRange {
  double low = 1;
  double high = 1;
  int64_t rows = 0;  // published runs that the range rests on
};

struct Framework {
  std::string name;
  std::string title;
  std::string versions;  // releases or commits that it describes
  std::vector<std::string> sources;
  FrameworkSupport offers;
  FrameworkModel model;
  UsualSettings usual;
  ResidualRange memory;
  ResidualRange time;
};

}  // namespace smp::framework
