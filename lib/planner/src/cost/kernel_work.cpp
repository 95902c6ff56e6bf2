#include "cost/kernel_work.h"

#include <algorithm>
#include <cmath>

#include "cost/in_engine.h"
#include "links/link_model.h"
#include "links/rate.h"
#include "smp/plan/spec/seen_pairs.h"
#include "smp/planner/cost/call_bytes.h"
#include "smp/planner/cost/narrow_matmuls.h"

namespace smp::cost {
namespace {

// Operators of a block's forward that torch.compile leaves.
constexpr double kCompiledOperators = 30;
// Kernels that add one chunk's part to ring attention's sums (Transformer Engine's
// context_parallel.py).
constexpr double kPartKernels = 6;
// An RMSNorm written with plain operators: cast to fp32, square, mean, scale, cast, weight.
constexpr double kUnfusedRmsNorm = 5;
// Drawing whether an element stays takes as long as so many flops of an fp32 matmul: 7 rounds of
// Philox4x32 for 8 elements. Measured on a core of an EPYC 9005: 0.22 to 0.26 ns with AVX-512, in
// residual sums and in attention of 256 to 1,024 tokens, where matmuls run at 190 Gflop/s
// (configs/jobs/quickstart.yaml); 0.5 ns with AVX2, which halves that rate too.
constexpr double kDrawFlops = 45;
// Columns are drawn so many at a time (dropout_mask.h of the runtime).
constexpr double kDrawnTogether = 128;

double drawn(double columns) { return std::ceil(columns / kDrawnTogether) * kDrawnTogether; }

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
                              is_narrow(choice.precision) ? Precision::kBf16 : choice.precision)) {
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

namespace {

// A quantized matrix of `elements` is written in 16 bits before each of its matmuls.
void dequantize(LayerWork& work, const PricedCall& call, double elements) {
  if (call.stored_bytes == 0) return;
  for (KernelWork* pass : {&work.forward, &work.backward}) {
    pass->bytes += (call.stored_bytes + call.element) * elements;
    pass->kernels += 1;
  }
}

}  // namespace

void linear(LayerWork& work, const PricedCall& call, double tokens, double in, double out,
            bool bias, double copies) {
  work.forward.matmul_s += matmul_s(call.rates, copies, tokens, out, in);
  const double of_weights = call.trains ? matmul_s(call.rates, copies, out, in, tokens) : 0;
  work.backward.matmul_s += matmul_s(call.rates, copies, tokens, in, out) + of_weights;
  work.forward.kernels += 1;
  work.backward.kernels += call.trains ? 2 : 1;
  if (const double cast = call.cast_bytes; cast > 0) {  // of Transformer Engine
    work.forward.bytes += copies * cast * (tokens * in + call.weight_casts * in * out);
    work.backward.bytes += copies * cast * tokens * out;
    work.forward.kernels += 4;
    work.backward.kernels += call.trains ? 4 : 2;
  }
  if (!call.trains) {
    dequantize(work, call, copies * in * out);
    if (bias && !call.fused) work.forward.bytes += 2 * call.element * copies * tokens * out;
    return;
  }
  double sums = 2 * call.gradient_bytes;
  if (!call.framework.fused_weight_gradients) sums += call.element;
  if (call.sums_beside) sums += call.element + 2 * kFp32Bytes;
  work.backward.bytes += sums * copies * in * out;
  if (!bias) return;
  work.backward.bytes += call.element * copies * tokens * out;
  if (!call.fused) work.forward.bytes += 2 * call.element * copies * tokens * out;
}

void passes(KernelWork& work, const PricedCall& call, double values, double kernels) {
  work.bytes += call.element * values;
  work.kernels += kernels;
}

void norm(LayerWork& work, const PricedCall& call, double tokens, double width) {
  const double fused = call.fused                              ? 1
                       : call.model.norm == NormKind::kRmsNorm ? kUnfusedRmsNorm
                                                               : 1.5;
  passes(work.forward, call, 2 * fused * tokens * width, fused * 1);
  passes(work.backward, call, 4 * fused * tokens * width, fused * 2);
}

double draw_s(const PricedCall& call, double draws) {
  return links::over(kDrawFlops * draws, matmul_rates(call.cluster, Precision::kFp32).flops_per_s);
}

void dropout(LayerWork& work, const PricedCall& call, double rows, double cols) {
  const double passed = call.draws_dropout ? 2 : 2.5;  // a mask of a byte
  for (KernelWork* pass : {&work.forward, &work.backward}) {
    passes(*pass, call, passed * rows * cols, 1);
    if (call.draws_dropout) pass->draws += rows * drawn(cols);
  }
}

void residual(LayerWork& work, const PricedCall& call) {
  const double values = call.wide_tokens * call.h;
  const bool dropout = call.model.hidden_dropout > 0;
  if (dropout && call.draws_dropout) {  // within the sum; backward a gradient of its own
    const double draws = call.wide_tokens * drawn(call.h);
    passes(work.forward, call, 3 * values, 1);
    passes(work.backward, call, 5 * values, 2);
    work.forward.draws += draws;
    work.backward.draws += draws;
    return;
  }
  const double forward = call.fused ? (dropout ? 3.5 : 3) : (dropout ? 5.5 : 3);
  passes(work.forward, call, forward * values, call.fused ? 1 : (dropout ? 2 : 1));
  passes(work.backward, call, (dropout ? 5.5 : 3) * values, dropout ? 2 : 1);
}

namespace {

void attention_core(LayerWork& work, const PricedCall& call) {
  const double s = call.sequence;
  const double context = call.sequence * call.c;  // keys that a query sees, the other ranks' too
  const double pairs = call.batch * call.heads;
  KernelWork core;
  KernelWork back;
  if (call.flash || call.cluster.device == DeviceKind::kCpu) {
    // Causal kernels skip the upper half, and what no window reaches.
    const double seen = call.model.stack == Stack::kDecoder
                            ? seen_pairs(call.model, context) / (context * context)
                            : 1.0;
    const double flops = 2 * seen * pairs * s * context * (call.key_dim + call.value_dim);
    const bool waves = call.core_rates.multiprocessors > 0;
    // Head dimensions run padded to 64 or 128.
    const double wide = (call.key_dim + call.value_dim) / 2;
    const double used = waves ? wide / (wide <= 64 ? 64 : std::ceil(wide / 128) * 128) : 1;
    const double narrow = waves && wide <= 64 ? 0.8 : 1;
    const double rate = call.core_rates.flops_per_s * used * narrow;
    core.matmul_s = links::over(flops, rate * (waves ? call.framework.attention_forward_rate : 1));
    back.matmul_s = links::over(waves ? 2.5 * flops : 2 * flops,
                                rate * (waves ? call.framework.attention_backward_rate : 1));
    core.kernels = 1;
    back.kernels = 3;
    if (waves && call.c > 1) {
      // Ring attention adds up what each further chunk of keys gives: the output in fp32, and its
      // scale, forward; the gradients of queries, keys and values backward.
      const double rows = (call.c - 1) * call.batch * s;
      const double out = rows * call.heads * call.value_dim;
      const double keys = rows * call.kv_heads * (call.key_dim + call.value_dim);
      core.bytes += (3 * kFp32Bytes + call.element) * out;
      back.bytes += (2 * kFp32Bytes + call.element) * (out + keys);
      core.kernels += kPartKernels * (call.c - 1);
      back.kernels += kPartKernels * (call.c - 1);
    }
    if (call.draws_dropout && call.model.attention_dropout > 0) {
      // A causal query's last draws reach half of those that are drawn together beyond its keys.
      const double of_query =
          std::min(drawn(context), seen < 1 ? seen * context + kDrawnTogether / 2 : drawn(context));
      core.draws = back.draws = pairs * s * of_query;
    }
  } else {
    core.matmul_s = matmul_s(call.core_rates, pairs, s, context, call.key_dim) +
                    matmul_s(call.core_rates, pairs, s, call.value_dim, context);
    back.matmul_s = 2 * core.matmul_s;
    const double scores = pairs * s * context;
    const bool dropout = call.model.attention_dropout > 0;
    // Scale, mask and softmax in one kernel, or one after the other with fp32 between.
    passes(core, call, (call.fused ? 2 : 9) * scores, call.fused ? 1 : 4);
    passes(back, call, (call.fused ? 3 : 7) * scores, call.fused ? 1 : 3);
    if (dropout) {
      passes(core, call, 2.5 * scores, 1);
      passes(back, call, 2.5 * scores, 1);
    }
    core.kernels += 4;
    back.kernels += 8;
    // Heads are brought together: one copy each way.
    passes(core, call, 2 * call.tokens * call.heads * call.value_dim, 1);
    passes(back, call, 2 * call.tokens * call.heads * call.value_dim, 1);
  }
  for (auto* of : {&work.forward, &work.attention_core}) {
    of->matmul_s += core.matmul_s;
    of->bytes += core.bytes;
    of->draws += core.draws;
    of->kernels += core.kernels;
  }
  work.backward.matmul_s += back.matmul_s;
  work.backward.bytes += back.bytes;
  work.backward.draws += back.draws;
  work.backward.kernels += back.kernels;
}

}  // namespace

namespace {

void rotate(LayerWork& work, const PricedCall& call) {
  if (call.model.position_embedding != PositionKind::kRotary) return;
  const double turned = call.tokens * (call.heads + call.kv_heads) * call.key_dim;
  passes(work.forward, call, (call.fused ? 2 : 8) * turned, call.fused ? 1 : 8);
  passes(work.backward, call, (call.fused ? 2 : 8) * turned, call.fused ? 1 : 8);
}

}  // namespace

void latent_up(LayerWork& work, const PricedCall& call) {
  const ModelSpec& model = call.model;
  const double q_rank = static_cast<double>(model.q_lora_rank);
  if (q_rank > 0) linear(work, call, call.tokens, q_rank, call.heads * call.key_dim, false);
  linear(work, call, call.tokens, static_cast<double>(model.kv_lora_rank),
         call.heads * (static_cast<double>(model.qk_head_dim) + call.value_dim), false);
  rotate(work, call);
}

void attention(LayerWork& work, const PricedCall& call) {
  const ModelSpec& model = call.model;
  const double q_width = call.heads * call.key_dim;
  const double kv_width = call.kv_heads * (call.key_dim + call.value_dim);
  if (call.latent) {
    const double down = static_cast<double>(model.kv_lora_rank + model.qk_rope_head_dim);
    const double q_rank = static_cast<double>(model.q_lora_rank);
    linear(work, call, call.tokens, call.h, q_rank > 0 ? q_rank : q_width, false);
    linear(work, call, call.tokens, call.h, down, false);
    norm(work, call, call.tokens, down);
    latent_up(work, call);
  } else {
    linear(work, call, call.tokens, call.h, q_width + kv_width, model.qkv_bias);
    rotate(work, call);
  }
  if (model.qk_norm) norm(work, call, call.tokens, (call.heads + call.kv_heads) * call.key_dim);
  attention_core(work, call);
  linear(work, call, call.tokens, call.heads * call.value_dim, call.h, model.attention_output_bias);
}

void mlp(LayerWork& work, const PricedCall& call, double tokens, double width, double copies) {
  const bool gated = is_gated(call.model.mlp);
  const bool bias = call.model.mlp_bias;
  linear(work, call, tokens, call.h, gated ? 2 * width : width, bias, copies);
  const double values = copies * tokens * width;
  if (gated) {
    const bool fused = call.fused && call.framework.fused_gate;
    passes(work.forward, call, (fused ? 3 : 5) * values, fused ? 1 : 2);
    passes(work.backward, call, (fused ? 5 : 8) * values, fused ? 1 : 3);
  } else {
    passes(work.forward, call, 2 * values, 1);
    passes(work.backward, call, 3 * values, 1);
  }
  linear(work, call, tokens, width, call.h, bias, copies);
}

void norms_and_residuals(LayerWork& work, const PricedCall& call, double further_kernels,
                         int mixers) {
  const int placed = call.model.norm_placement == NormPlacement::kBoth ? 2 : 1;
  for (int i = 0; i < (call.model.shared_norm ? 1 : mixers) * placed; ++i) {
    norm(work, call, call.wide_tokens, call.h);
  }
  for (int i = 0; i < mixers; ++i) residual(work, call);
  const double others =
      (call.training.compiled ? kCompiledOperators : call.framework.operators_per_block) * mixers /
          2 +
      further_kernels;
  const double counted = work.forward.kernels;
  // Views, casts and small sums that the counts above leave out.
  const double more = std::max(0.0, others - counted);
  work.forward.kernels += more;
  work.backward.kernels += 2 * more;
  if (counted > 0) work.selective.kernels *= 1 + more / counted;
}

}  // namespace smp::cost
