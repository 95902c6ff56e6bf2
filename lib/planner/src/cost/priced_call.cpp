#include "cost/priced_call.h"

#include "cost/in_engine.h"
#include "smp/planner/cost/narrow_matmuls.h"

namespace smp::cost {

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
  batch = choice.micro_batch;
  tokens = batch * static_cast<double>(training.sequence_length) / choice.context;
  element = core_rates.element_bytes;
  fused = framework.fused_kernels || training.compiled;
  adds_biases = !fused || runs_in_engine(job);
  draws_dropout = runs_in_engine(job);
  const bool fp32_sums = training.accumulate_gradients_in_fp32.value_or(
      choice.precision == Precision::kFp16 ? framework.fp32_gradients_with_fp16
                                           : framework.fp32_gradients_with_bf16);
  sums_beside =
      choice.precision == Precision::kBf16 && framework.fp32_sum_beside_gradients && fp32_sums;
  gradient_bytes = element == 2 && fp32_sums && !sums_beside ? 4 : element;
}

}  // namespace smp::cost
