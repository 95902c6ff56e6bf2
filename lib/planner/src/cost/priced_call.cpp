#include "cost/priced_call.h"

#include <algorithm>
#include <cmath>

#include "cost/in_engine.h"
#include "smp/planner/cost/narrow_matmuls.h"

namespace smp::cost {
namespace {

double padded_vocabulary(const ModelSpec& model) {
  const double to = static_cast<double>(std::max<int64_t>(1, model.vocab_multiple_of));
  return std::ceil(static_cast<double>(model.vocab_size) / to) * to;
}

}  // namespace

PricedCall::PricedCall(const JobSpec& job_spec, const choice::LayoutChoice& choice)
    : job(job_spec),
      model(job.model),
      cluster(job.cluster),
      training(job.training),
      framework(framework::framework_model(job)),
      rates(matmul_rates(job.cluster, choice.precision)),
      core_rates(matmul_rates(job.cluster,
                              is_narrow(choice.precision) ? Precision::kBf16 : choice.precision)),
      wide_rates(matmul_rates(job.cluster, choice.precision == Precision::kFp64
                                               ? Precision::kFp64
                                               : Precision::kFp32)) {
  if (cluster.fp8_flops_per_s > 0) {  // Hopper and later
    rates.flops_per_s *= framework.hopper_matmul_rate;
    core_rates.flops_per_s *= framework.hopper_matmul_rate;
  }
  if (is_narrow(choice.precision)) rates.flops_per_s *= framework.fp8_matmul_rate;
  cast_bytes = is_narrow(choice.precision) ? cost::cast_bytes(job, choice.precision) : 0;
  weight_casts = casts_weights(job, choice) ? 1.0 / choice.microbatches : 0;
  t = choice.tensor;
  c = choice.context;
  batch = choice.micro_batch;
  sequence = static_cast<double>(training.sequence_length) / c;
  tokens = batch * sequence;
  wide_tokens = choice.sequence_parallel ? tokens / t : tokens;
  h = static_cast<double>(model.hidden_size);
  element = core_rates.element_bytes;
  const TensorKinds& kinds = job.parallel.tensor_parallel;
  const double attention_ranks = kinds.attention ? t : 1;
  mlp_ranks = kinds.mlp ? t : 1;
  heads = static_cast<double>(model.num_heads) / attention_ranks;
  kv_heads = std::max(1.0, static_cast<double>(model.num_kv_heads) / attention_ranks);
  latent = model.kv_lora_rank > 0;
  key_dim =
      static_cast<double>(latent ? model.qk_head_dim + model.qk_rope_head_dim : model.head_dim);
  value_dim = static_cast<double>(latent ? model.v_head_dim : model.head_dim);
  vocabulary = padded_vocabulary(model) / (kinds.embedding ? t : 1);
  fused = framework.fused_kernels || training.compiled;
  draws_dropout = runs_in_engine(job);
  flash = training.attention == AttentionKind::kFlash && cluster.device == DeviceKind::kCuda;
  const bool fp32_sums = training.accumulate_gradients_in_fp32.value_or(
      choice.precision == Precision::kFp16 ? framework.fp32_gradients_with_fp16
                                           : framework.fp32_gradients_with_bf16);
  sums_beside =
      choice.precision == Precision::kBf16 && framework.fp32_sum_beside_gradients && fp32_sums;
  gradient_bytes = element == 2 && fp32_sums && !sums_beside ? 4 : element;
}

}  // namespace smp::cost
