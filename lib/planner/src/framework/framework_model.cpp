#include "smp/planner/framework/framework_model.h"

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
constexpr FrameworkModel smp_framework() {
  FrameworkModel framework;
  framework.fp32_gradients_with_bf16 = true;
  framework.gradient_copy_in_fp32 = true;
  framework.flat_gradient_buffer = true;
  framework.fixed_bytes = kCudaContext;
  framework.communicator_bytes = kCommunicator;
  framework.fragmentation = 0.04;
  framework.overlaps_data_reduction = true;
  framework.overlaps_parameter_gather = true;
  return framework;
}

// Megatron-LM (megatron/core at d98e8a6): distributed_data_parallel's flat buffers, fp32 main
// gradients with bf16, fp16 main gradients with fp32 copies in the optimizer, padded vocabulary
// (_vocab_size_with_padding), outputs released once sent (deallocate_output_tensor), fused
// weight gradients.
constexpr FrameworkModel megatron_framework() {
  FrameworkModel framework = smp_framework();
  // Megatron-core's modules of today; fitted on its own test runs of tiny models.
  framework.operators_per_block = 265;
  framework.overlaps_parameter_gather = false;
  framework.tied_copy_has_optimizer = true;
  framework.gradient_copy_at_step_only = true;  // zero_grad(set_to_none) drops main_param.grad
  framework.frees_sent_outputs = true;
  framework.bucket_elements = 40'000'000;
  framework.transformer_engine = true;
  framework.fragmentation = 0.06;
  return framework;
}

// DeepSpeed (runtime/zero/config.py: reduce_bucket_size and allgather_bucket_size 5e8 elements;
// runtime/bf16_optimizer.py: an fp32 sum of all gradients beside the bf16 ones), with Megatron's
// model code as in Megatron-DeepSpeed.
constexpr FrameworkModel deepspeed_framework() {
  FrameworkModel framework = megatron_framework();
  framework.fp32_gradients_with_bf16 = false;
  framework.gradient_copy_in_fp32 = false;
  framework.gradient_copy_at_step_only = false;
  framework.fp32_sum_beside_gradients = true;
  framework.transformer_engine = false;
  framework.flat_gradient_buffer = true;
  framework.frees_sent_outputs = false;
  framework.fused_weight_gradients = false;
  // engine.py and pipe/engine.py: allreduce_gradients() comes after the last backward; ZeRO's
  // reductions run beside it.
  framework.plain_reductions_wait = true;
  // pipe/engine.py sends and receives in blocking calls: fitted on vTrain's 4 stages (123 runs, 5 %
  // too fast without) and MT-NLG's 35 (3 runs, 14 %); residuals 1 % and 2 %.
  framework.neighbour_wait = 0.15;
  // stage_1_and_2.py, allreduce_and_scatter(): each rank copies its part out of an all-reduce.
  framework.reduces_everywhere = true;
  // Its ZeRO-3 of 2021 moved 3.5 GB/s a host where the network has 50, and hid half of it: fitted
  // on bigscience's V100 sweep, mean residual 20 %.
  framework.gather_share = 0.1;
  framework.gathers_hidden = 0.5;
  // Megatron's model code of 2021: 0.8 ms a block on vTrain's A100 hosts.
  framework.operators_per_block = 100;
  // stage_1_and_2.py, step(): 16-bit gradients of the rank's shard made flat, and in fp32.
  framework.step_bytes = 2 + 4;
  // InternEvo, which shards alike, updates its flat shard with torch.optim's Adam of one tensor:
  // the root of the variance and its quotient (fitted on its 16 published figures: median residual
  // 4 %, nine of ten within 15 %).
  framework.step_bytes_unfused = 8;
  framework.bucket_elements = 500'000'000;
  // zero/partitioned_param_coordinator.py, __params_to_release(): stage3_max_reuse_distance, 1e9 at
  // first.
  framework.reuse_elements = 1'000'000'000;
  // "auto" of transformers/integrations/deepspeed.py: reduce_bucket_size h^2 and
  // stage3_prefetch_bucket_size 0.9 h^2, which the ZeRO-3 scripts of Megatron-DeepSpeed set too.
  framework.small_shard_buckets = true;
  framework.fetches_checkpoints_late =
      true;  // activation_checkpointing/checkpointing.py, backward()
  framework.all_gather_bucket_elements = 500'000'000;
  framework.fragmentation = 0.08;
  return framework;
}

// InternEvo (c628a8c): DeepSpeed's bytes; hybrid_zero_optim.py all-reduces gradients beside the
// backward, and broadcast_params() sends the weights of one owner of tensors after the other;
// batched sends between stages, as Megatron-LM's; ZeRO-3 is PyTorch's.
constexpr FrameworkModel internevo_framework() {
  FrameworkModel framework = deepspeed_framework();
  framework.owners_broadcast = true;
  framework.reuse_elements = 0;
  framework.small_shard_buckets = false;
  framework.fetches_checkpoints_late = false;
  framework.plain_reductions_wait = false;
  framework.neighbour_wait = 0;
  framework.gather_share = 1;
  framework.gathers_hidden = 1;
  return framework;
}

// PyTorch FSDP2 with MixedPrecision(bf16, reduce fp32), as torchtitan uses it: fp32 shards and
// gradients, the next layer gathered ahead; eager cross-entropy of fp32 logits (log-softmax kept,
// its gradient and the loss's beside it).
constexpr FrameworkModel fsdp_framework() {
  FrameworkModel framework;
  framework.fp32_gradients_with_bf16 = true;
  framework.fp32_gradients_with_fp16 = true;
  framework.fp32_weights = true;
  framework.fused_optimizer = false;
  framework.fixed_bytes = kCudaContext;
  framework.communicator_bytes = kCommunicator;
  framework.fragmentation = 0.06;
  framework.overlaps_data_reduction = true;
  framework.overlaps_parameter_gather = true;
  framework.fused_kernels = false;
  framework.repeats_kv_heads = true;
  framework.selective_per_operation = true;
  framework.fused_weight_gradients = false;
  framework.logit = {10, 4, 12};
  // One kernel over 16-bit logits, or a compiled loss: their gradient lies beside them.
  framework.fused_logit = {2, 2, 4};
  framework.gathers_ends_with_model = true;  // fully_shard() of the root: not resharded
  return framework;
}

// SMP v1 (Rubik): fp16 with the 20-byte rule, PyTorch's DDP with 25 MB buckets of their own.
constexpr FrameworkModel smp_v1_framework() {
  FrameworkModel framework = smp_framework();
  framework.fp32_gradients_with_bf16 = true;
  framework.overlaps_parameter_gather = false;
  framework.bucket_elements = 25 * 1024 * 1024 / 2;
  framework.fused_weight_gradients = false;
  framework.overlaps_data_reduction = true;
  framework.fragmentation = 0.08;
  return framework;
}

// SMP v2: PyTorch FSDP underneath, Transformer Engine's fused layers.
constexpr FrameworkModel smp_v2_framework() {
  FrameworkModel framework = fsdp_framework();
  framework.fused_kernels = true;
  framework.repeats_kv_heads = false;
  framework.selective_per_operation = false;
  framework.transformer_engine = true;
  return framework;
}

constexpr FrameworkModel kSmp = smp_framework();
constexpr FrameworkModel kMegatron = megatron_framework();
constexpr FrameworkModel kDeepSpeed = deepspeed_framework();
constexpr FrameworkModel kInternEvo = internevo_framework();
constexpr FrameworkModel kFsdp = fsdp_framework();
constexpr FrameworkModel kSmpV1 = smp_v1_framework();
constexpr FrameworkModel kSmpV2 = smp_v2_framework();

}  // namespace

const FrameworkModel& framework_model(Profile profile) {
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

const FrameworkModel& framework_model(const JobSpec& job) {
  return framework_model(job.parallel.profile.value_or(Profile::kSmp));
}

}  // namespace smp::framework
