#include "smp/planner/framework/habits.h"

#include "smp/plan/base/check.h"

namespace smp::framework {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;
constexpr double kGiB = 1024.0 * kMiB;

// A process's CUDA context with loaded kernels: 0.47-0.92 GiB (stas00/ml-engineering,
// training/performance).
constexpr double kCudaContext = 0.55 * kGiB;
// NCCL: the first collective takes about 0.7 GiB more of the device over all communicators of a
// usual job (same source: 2.0 GiB after the first collective, 1.28 later, of them 0.55 context).
constexpr double kCommunicator = 0.18 * kGiB;

// Our engine: bf16 weights, fp32 gradients in one flat buffer, reduced in buckets in place.
constexpr Habits smp_habits() {
  Habits habits;
  habits.fp32_gradients_with_bf16 = true;
  habits.gradient_copy_in_fp32 = true;
  habits.flat_gradient_buffer = true;
  habits.fixed_bytes = kCudaContext;
  habits.communicator_bytes = kCommunicator;
  habits.fragmentation = 0.04;
  habits.overlaps_data_reduction = true;
  habits.overlaps_parameter_gather = true;
  return habits;
}

// Megatron-LM (megatron/core at d98e8a6): distributed_data_parallel's flat buffers, fp32 main
// gradients with bf16, fp16 main gradients with fp32 copies in the optimizer, padded vocabulary
// (_vocab_size_with_padding), outputs released once sent (deallocate_output_tensor), fused
// weight gradients.
constexpr Habits megatron_habits() {
  Habits habits = smp_habits();
  // Megatron-core's modules of today; fitted on its own test runs of tiny models.
  habits.operators_per_block = 265;
  habits.overlaps_parameter_gather = false;
  habits.tied_copy_has_optimizer = true;
  habits.gradient_copy_at_step_only = true;  // zero_grad(set_to_none) drops main_param.grad
  habits.frees_sent_outputs = true;
  habits.bucket_elements = 40'000'000;
  habits.transformer_engine = true;
  habits.fragmentation = 0.06;
  return habits;
}

// DeepSpeed (runtime/zero/config.py: reduce_bucket_size and allgather_bucket_size 5e8 elements;
// runtime/bf16_optimizer.py: an fp32 sum of all gradients beside the bf16 ones), with Megatron's
// model code as in Megatron-DeepSpeed.
constexpr Habits deepspeed_habits() {
  Habits habits = megatron_habits();
  habits.fp32_gradients_with_bf16 = false;
  habits.gradient_copy_in_fp32 = false;
  habits.gradient_copy_at_step_only = false;
  habits.fp32_sum_beside_gradients = true;
  habits.transformer_engine = false;
  habits.flat_gradient_buffer = true;
  habits.frees_sent_outputs = false;
  habits.fused_weight_gradients = false;
  // engine.py and pipe/engine.py: allreduce_gradients() comes after the last backward; ZeRO's
  // reductions run beside it.
  habits.plain_reductions_wait = true;
  // pipe/engine.py sends and receives in blocking calls: fitted on vTrain's 4 stages (123 runs, 5 %
  // too fast without) and MT-NLG's 35 (3 runs, 14 %); residuals 1 % and 2 %.
  habits.neighbour_wait = 0.15;
  // stage_1_and_2.py, allreduce_and_scatter(): each rank copies its part out of an all-reduce.
  habits.reduces_everywhere = true;
  // Its ZeRO-3 of 2021 moved 3.5 GB/s a host where the network has 50, and hid half of it: fitted
  // on bigscience's V100 sweep, mean residual 20 %.
  habits.gather_share = 0.1;
  habits.gathers_hidden = 0.5;
  // Megatron's model code of 2021: 0.8 ms a block on vTrain's A100 hosts.
  habits.operators_per_block = 100;
  // stage_1_and_2.py, step(): 16-bit gradients of the rank's shard made flat, and in fp32.
  habits.step_bytes = 2 + 4;
  // InternEvo, which shards alike, updates its flat shard with torch.optim's Adam of one tensor:
  // the root of the variance and its quotient (fitted on its 16 published figures: median residual
  // 4 %, nine of ten within 15 %).
  habits.step_bytes_unfused = 8;
  habits.bucket_elements = 500'000'000;
  // zero/partitioned_param_coordinator.py, __params_to_release(): stage3_max_reuse_distance, 1e9 at
  // first.
  habits.reuse_elements = 1'000'000'000;
  // "auto" of transformers/integrations/deepspeed.py: reduce_bucket_size h^2 and
  // stage3_prefetch_bucket_size 0.9 h^2, which the ZeRO-3 scripts of Megatron-DeepSpeed set too.
  habits.small_shard_buckets = true;
  habits.fetches_checkpoints_late = true;  // activation_checkpointing/checkpointing.py, backward()
  habits.all_gather_bucket_elements = 500'000'000;
  habits.fragmentation = 0.08;
  return habits;
}

// InternEvo (c628a8c): DeepSpeed's bytes; hybrid_zero_optim.py all-reduces gradients beside the
// backward, and broadcast_params() sends the weights of one owner of tensors after the other;
// batched sends between stages, as Megatron-LM's; ZeRO-3 is PyTorch's.
constexpr Habits internevo_habits() {
  Habits habits = deepspeed_habits();
  habits.owners_broadcast = true;
  habits.reuse_elements = 0;
  habits.small_shard_buckets = false;
  habits.fetches_checkpoints_late = false;
  habits.plain_reductions_wait = false;
  habits.neighbour_wait = 0;
  habits.gather_share = 1;
  habits.gathers_hidden = 1;
  return habits;
}

// PyTorch FSDP2 with MixedPrecision(bf16, reduce fp32), as torchtitan uses it: fp32 shards and
// gradients, the next layer gathered ahead; eager cross-entropy of fp32 logits (log-softmax kept,
// its gradient and the loss's beside it).
constexpr Habits fsdp_habits() {
  Habits habits;
  habits.fp32_gradients_with_bf16 = true;
  habits.fp32_gradients_with_fp16 = true;
  habits.fp32_weights = true;
  habits.fused_optimizer = false;
  habits.fixed_bytes = kCudaContext;
  habits.communicator_bytes = kCommunicator;
  habits.fragmentation = 0.06;
  habits.overlaps_data_reduction = true;
  habits.overlaps_parameter_gather = true;
  habits.fused_kernels = false;
  habits.repeats_kv_heads = true;
  habits.selective_per_operation = true;
  habits.fused_weight_gradients = false;
  habits.logit = {10, 4, 12};
  // One kernel over 16-bit logits, or a compiled loss: their gradient lies beside them.
  habits.fused_logit = {2, 2, 4};
  habits.gathers_ends_with_model = true;  // fully_shard() of the root: not resharded
  return habits;
}

// SMP v1 (Rubik): fp16 with the 20-byte rule, PyTorch's DDP with 25 MB buckets of their own.
constexpr Habits smp_v1_habits() {
  Habits habits = smp_habits();
  habits.fp32_gradients_with_bf16 = true;
  habits.overlaps_parameter_gather = false;
  habits.bucket_elements = 25 * 1024 * 1024 / 2;
  habits.fused_weight_gradients = false;
  habits.overlaps_data_reduction = true;
  habits.fragmentation = 0.08;
  return habits;
}

// SMP v2: PyTorch FSDP underneath, Transformer Engine's fused layers.
constexpr Habits smp_v2_habits() {
  Habits habits = fsdp_habits();
  habits.fused_kernels = true;
  habits.repeats_kv_heads = false;
  habits.selective_per_operation = false;
  habits.transformer_engine = true;
  return habits;
}

constexpr Habits kSmp = smp_habits();
constexpr Habits kMegatron = megatron_habits();
constexpr Habits kDeepSpeed = deepspeed_habits();
constexpr Habits kInternEvo = internevo_habits();
constexpr Habits kFsdp = fsdp_habits();
constexpr Habits kSmpV1 = smp_v1_habits();
constexpr Habits kSmpV2 = smp_v2_habits();

}  // namespace

const Habits& habits_of(Profile profile) {
  switch (profile) {
    case Profile::kSmp: return kSmp;
    case Profile::kMegatron: return kMegatron;
    case Profile::kDeepSpeed: return kDeepSpeed;
    case Profile::kInternEvo: return kInternEvo;
    case Profile::kFsdp: return kFsdp;
    case Profile::kSmpV1: return kSmpV1;
    case Profile::kSmpV2: return kSmpV2;
  }
  check_failed(__FILE__, __LINE__, "unknown profile");
}

const Habits& habits_of(const JobSpec& job) {
  return habits_of(job.parallel.profile.value_or(Profile::kSmp));
}

}  // namespace smp::framework
