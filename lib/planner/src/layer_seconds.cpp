#include "smp/planner/layer_seconds.h"

#include <algorithm>
#include <cmath>

#include "link_model.h"
#include "matmul_seconds.h"
#include "rank_order.h"
#include "smp/planner/habits.h"

namespace smp {
namespace {

// Share of the matmul rate that flash attention's kernels reach, forward and backward (Dao 2023,
// arXiv 2307.08691, figures 4 to 6: 190 and 150 of an A100's 271 Tflop/s, 350 and 300 of an H100's
// 795, causal, head dimension 128).
constexpr double kFlashForward = 0.36;
constexpr double kFlashBackward = 0.29;
// Operators of routing, permuting and exchanging tokens of a block with experts (Megatron-core's
// alltoall dispatcher; fitted on its own test runs).
constexpr double kRoutingKernels = 300;
// Operators of a block's forward that torch.compile leaves.
constexpr double kCompiledOperators = 30;
// Beside messages, each kernel waits for streams and is waited for: more to launch.
constexpr double kMessageKernels = 0.1;
// Launches run ahead of kernels by a queue, which evens out what takes turns in being slower: the
// sum of both with this exponent.
constexpr double kQueue = 6;
// Share of the bandwidth that memory-bound kernels reach (STREAM-like kernels on A100 and H100).
constexpr double kMemoryEfficiency = 0.70;

// Of an element that is cast to fp8: read in 16 bits, written twice, once transposed.
constexpr double kCastBytes = 4;
constexpr double kFp32Bytes = 4;

// What the kernels of one direction take.
struct Work {
  double matmul_s = 0;
  double bytes = 0;  // of memory-bound kernels
  double kernels = 0;
};

struct Both {
  Work forward;
  Work backward;
  Work attention_core;  // part of forward: what selective recomputation repeats
};

// Everything that the formulas below read, once.
struct Call {
  Call(const JobSpec& job_spec, const LayoutChoice& choice)
      : job(job_spec),
        model(job.model),
        cluster(job.cluster),
        training(job.training),
        habits(habits_of(job.parallel.profile.value_or(Profile::kSmp))),
        rates(matmul_rates(job.cluster, choice.precision)),
        core_rates(matmul_rates(job.cluster, choice.precision == Precision::kFp8
                                                 ? Precision::kBf16
                                                 : choice.precision)) {
    t = choice.tensor;
    c = choice.context;
    batch = choice.micro_batch;
    sequence = static_cast<double>(training.sequence_length) / c;
    tokens = batch * sequence;
    wide_tokens = choice.sequence_parallel ? tokens / t : tokens;
    h = static_cast<double>(model.hidden_size);
    element = core_rates.element_bytes;
    heads = static_cast<double>(model.num_heads) / t;
    kv_heads = std::max(1.0, static_cast<double>(model.num_kv_heads) / t);
    latent = model.kv_lora_rank > 0;
    key_dim =
        static_cast<double>(latent ? model.qk_head_dim + model.qk_rope_head_dim : model.head_dim);
    value_dim = static_cast<double>(latent ? model.v_head_dim : model.head_dim);
    vocabulary = padded_vocabulary(model) / t;
    fused = habits.fused_kernels || training.compiled;
    flash = training.attention == AttentionKind::kFlash && cluster.device == DeviceKind::kCuda;
    const bool fp32_sums = choice.precision == Precision::kFp16 ? habits.fp32_gradients_with_fp16
                                                                : habits.fp32_gradients_with_bf16;
    sums_beside = choice.precision == Precision::kBf16 && habits.fp32_sum_beside_gradients;
    gradient_bytes =
        element == 2 && training.accumulate_gradients_in_fp32.value_or(fp32_sums) ? 4 : element;
  }

  static double padded_vocabulary(const ModelSpec& model) {
    const double to = static_cast<double>(std::max<int64_t>(1, model.vocab_multiple_of));
    return std::ceil(static_cast<double>(model.vocab_size) / to) * to;
  }

  const JobSpec& job;
  const ModelSpec& model;
  const ClusterSpec& cluster;
  const TrainingSpec& training;
  const Habits& habits;
  MatmulRates rates;
  MatmulRates core_rates;  // of attention: never fp8
  double t, c, batch, sequence, tokens, wide_tokens, h, element, heads, kv_heads;
  double key_dim, value_dim, vocabulary, gradient_bytes;
  bool latent, fused, flash;
  bool sums_beside;  // 16-bit gradients are added to fp32 ones in a pass of its own
};

// x [tokens, in] -> [tokens, out], its two gradients, and the sum of the weight's into the buffer.
void linear(Both& work, const Call& call, double tokens, double in, double out, bool bias,
            double copies = 1) {
  work.forward.matmul_s += matmul_s(call.rates, copies, tokens, out, in);
  work.backward.matmul_s +=
      matmul_s(call.rates, copies, tokens, in, out) + matmul_s(call.rates, copies, out, in, tokens);
  work.forward.kernels += 1;
  work.backward.kernels += 2;
  if (call.rates.element_bytes == 1) {
    // Transformer Engine: operands are cast, and laid out again for the other direction.
    work.forward.bytes += copies * (kCastBytes * tokens * in + kCastBytes * in * out);
    work.backward.bytes += copies * kCastBytes * tokens * out;
    work.forward.kernels += 4;
    work.backward.kernels += 4;
  }
  double sums = 2 * call.gradient_bytes;
  if (!call.habits.fused_weight_gradients) sums += call.element;
  if (call.sums_beside) sums += call.element + 2 * kFp32Bytes;
  work.backward.bytes += sums * copies * in * out;
  if (!bias) return;
  work.backward.bytes += call.element * copies * tokens * out;
  if (!call.fused) work.forward.bytes += 2 * call.element * copies * tokens * out;
}

// Memory-bound kernels: values read and written, in elements.
void passes(Work& work, const Call& call, double values, double kernels) {
  work.bytes += call.element * values;
  work.kernels += kernels;
}

// An RMSNorm written with plain operators: cast to fp32, square, mean, scale, cast, weight.
constexpr double kUnfusedRmsNorm = 5;

void norm(Both& work, const Call& call, double tokens, double width) {
  const double fused = call.fused                              ? 1
                       : call.model.norm == NormKind::kRmsNorm ? kUnfusedRmsNorm
                                                               : 1.5;
  passes(work.forward, call, 2 * fused * tokens * width, fused * 1);
  passes(work.backward, call, 4 * fused * tokens * width, fused * 2);
}

// Dropout and the sum with the residual stream.
void residual(Both& work, const Call& call) {
  const double values = call.wide_tokens * call.h;
  const bool dropout = call.model.hidden_dropout > 0;
  const double forward = call.fused ? (dropout ? 3.5 : 3) : (dropout ? 5.5 : 3);
  passes(work.forward, call, forward * values, call.fused ? 1 : (dropout ? 2 : 1));
  passes(work.backward, call, (dropout ? 5.5 : 3) * values, dropout ? 2 : 1);
}

void attention_core(Both& work, const Call& call) {
  const double s = call.sequence;
  const double context = call.sequence * call.c;  // keys that a query sees, the other ranks' too
  const double pairs = call.batch * call.heads;
  Work core;
  Work back;
  if (call.flash || call.cluster.device == DeviceKind::kCpu) {
    // Causal kernels skip the upper half.
    const double half = call.model.stack == Stack::kDecoder ? 0.5 : 1.0;
    const double flops = 2 * half * pairs * s * context * (call.key_dim + call.value_dim);
    const bool waves = call.core_rates.multiprocessors > 0;
    // Head dimensions run padded to 64 or 128.
    const double wide = (call.key_dim + call.value_dim) / 2;
    const double used = waves ? wide / (wide <= 64 ? 64 : std::ceil(wide / 128) * 128) : 1;
    const double narrow = waves && wide <= 64 ? 0.8 : 1;
    const double rate = call.core_rates.flops_per_s * used * narrow;
    core.matmul_s = over(flops, rate * (waves ? kFlashForward : 1));
    back.matmul_s = over(waves ? 2.5 * flops : 2 * flops, rate * (waves ? kFlashBackward : 1));
    core.kernels = 1;
    back.kernels = 3;
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
    of->kernels += core.kernels;
  }
  work.backward.matmul_s += back.matmul_s;
  work.backward.bytes += back.bytes;
  work.backward.kernels += back.kernels;
}

void attention(Both& work, const Call& call) {
  const ModelSpec& model = call.model;
  const double q_width = call.heads * call.key_dim;
  const double kv_width = call.kv_heads * (call.key_dim + call.value_dim);
  if (call.latent) {
    const double down = static_cast<double>(model.kv_lora_rank + model.qk_rope_head_dim);
    const double q_rank = static_cast<double>(model.q_lora_rank);
    if (q_rank > 0) {
      linear(work, call, call.tokens, call.h, q_rank, false);
      linear(work, call, call.tokens, q_rank, q_width, false);
    } else {
      linear(work, call, call.tokens, call.h, q_width, false);
    }
    linear(work, call, call.tokens, call.h, down, false);
    linear(work, call, call.tokens, static_cast<double>(model.kv_lora_rank),
           call.heads * (static_cast<double>(model.qk_head_dim) + call.value_dim), false);
    norm(work, call, call.tokens, down);
  } else {
    linear(work, call, call.tokens, call.h, q_width + kv_width, model.qkv_bias);
  }
  const bool rotary = model.position_embedding == PositionKind::kRotary;
  if (rotary) {
    const double turned = call.tokens * (call.heads + call.kv_heads) * call.key_dim;
    passes(work.forward, call, (call.fused ? 2 : 8) * turned, call.fused ? 1 : 8);
    passes(work.backward, call, (call.fused ? 2 : 8) * turned, call.fused ? 1 : 8);
  }
  if (model.qk_norm) norm(work, call, call.tokens, (call.heads + call.kv_heads) * call.key_dim);
  attention_core(work, call);
  linear(work, call, call.tokens, call.heads * call.value_dim, call.h, model.attention_output_bias);
}

// One MLP of `width` on `tokens` tokens; `copies` of them side by side (experts).
void mlp(Both& work, const Call& call, double tokens, double width, double copies = 1) {
  const bool gated = is_gated(call.model.mlp);
  const bool bias = call.model.mlp_bias;
  linear(work, call, tokens, call.h, gated ? 2 * width : width, bias, copies);
  const double values = copies * tokens * width;
  if (gated) {
    passes(work.forward, call, (call.fused ? 3 : 5) * values, call.fused ? 1 : 2);
    passes(work.backward, call, (call.fused ? 5 : 8) * values, call.fused ? 1 : 3);
  } else {
    passes(work.forward, call, 2 * values, 1);
    passes(work.backward, call, 3 * values, 1);
  }
  linear(work, call, tokens, width, call.h, bias, copies);
}

void norms_and_residuals(Both& work, const Call& call, double further_kernels = 0) {
  norm(work, call, call.wide_tokens, call.h);
  if (!call.model.shared_norm) norm(work, call, call.wide_tokens, call.h);
  residual(work, call);
  residual(work, call);
  const double others =
      (call.training.compiled ? kCompiledOperators : call.habits.operators_per_block) +
      further_kernels;
  const double counted = work.forward.kernels;
  // Views, casts and small sums that the counts above leave out.
  const double more = std::max(0.0, others - counted);
  work.forward.kernels += more;
  work.backward.kernels += 2 * more;
}

double memory_s(const Call& call, double bytes) {
  const bool waves = call.core_rates.multiprocessors > 0;
  return over(bytes, call.cluster.memory_bytes_per_s * (waves ? kMemoryEfficiency : 1));
}

// Seconds that the processor needs to launch the kernels beyond those that they run.
double launch_s(const Call& call, const Work& work, double messages_s) {
  const double running = work.matmul_s + memory_s(call, work.bytes) + messages_s;
  const double kernels = work.kernels * (messages_s > 0 ? 1 + kMessageKernels : 1);
  const double launching = kernels * call.cluster.kernel_launch_s;
  if (launching <= 0) return 0;
  return std::pow(std::pow(running, kQueue) + std::pow(launching, kQueue), 1 / kQueue) - running;
}

struct Messages {
  double forward = 0;
  double backward = 0;
};

// Tensor parallelism: what enters and leaves each pair of cut matrices.
Messages tensor_messages(const Call& call, const LayoutChoice& choice, double pairs) {
  if (choice.tensor == 1) return {};
  const Placement group = tensor_placement(choice, call.job);
  const double bytes = call.element * call.tokens * call.h;
  if (!choice.sequence_parallel) {
    const double each = all_reduce_s(bytes, group, call.cluster);
    return {pairs * each, pairs * each};
  }
  // The input of each cut matrix is gathered once more for its weight's gradient, while that of the
  // input is computed.
  const double each =
      all_gather_s(bytes, group, call.cluster) + reduce_scatter_s(bytes, group, call.cluster);
  return {pairs * each, pairs * each};
}

// Ring attention: each rank's keys and values go round, beside the computing of the part before.
Messages context_messages(const Call& call, const LayoutChoice& choice, const Both& work) {
  if (choice.context == 1) return {};
  const Placement group = context_placement(choice, call.job);
  const double bytes = call.element * call.tokens * call.kv_heads * (call.key_dim + call.value_dim);
  const double hops = static_cast<double>(choice.context - 1);
  const double hop = send_s(bytes, group.hosts == 1, call.cluster);
  const double computing = work.attention_core.matmul_s / static_cast<double>(choice.context);
  const double first = hop;  // nothing to compute beside it
  const double forward = first + (hops - 1) * std::max(0.0, hop - computing);
  const double backward = 2 * first + (hops - 1) * std::max(0.0, 2 * hop - 2 * computing);
  return {forward, backward};
}

CallSeconds seconds_of(const Call& call, const LayoutChoice& choice, const Both& work,
                       const Messages& tensor, const Messages& context, const Messages& expert) {
  CallSeconds seconds;
  seconds.matmul_forward = work.forward.matmul_s;
  seconds.matmul_backward = work.backward.matmul_s;
  seconds.memory_forward = memory_s(call, work.forward.bytes);
  seconds.memory_backward = memory_s(call, work.backward.bytes);
  seconds.tensor_forward = tensor.forward;
  seconds.tensor_backward = tensor.backward;
  seconds.context_forward = context.forward;
  seconds.context_backward = context.backward;
  seconds.expert_forward = expert.forward;
  seconds.expert_backward = expert.backward;
  seconds.launch_forward =
      launch_s(call, work.forward, tensor.forward + context.forward + expert.forward);
  seconds.launch_backward =
      launch_s(call, work.backward, tensor.backward + context.backward + expert.backward);
  if (choice.recompute == Recompute::kFull) seconds.recompute = seconds.forward();
  if (choice.recompute == Recompute::kSelective) {
    seconds.recompute = work.attention_core.matmul_s + memory_s(call, work.attention_core.bytes);
  }
  return seconds;
}

void add_share(Work& sum, const Work& part, double share) {
  sum.matmul_s += share * part.matmul_s;
  sum.bytes += share * part.bytes;
  sum.kernels += share * part.kernels;
}

CallSeconds dense_block(const Call& call, const LayoutChoice& choice) {
  Both work;
  attention(work, call);
  if (call.model.decoder_layers > 0) {
    // A decoder's blocks attend twice; the mean over both stacks stands for each block.
    Both cross;
    norm(cross, call, call.wide_tokens, call.h);
    attention(cross, call);
    const double share = static_cast<double>(call.model.decoder_layers) /
                         static_cast<double>(call.model.num_layers + call.model.decoder_layers);
    add_share(work.forward, cross.forward, share);
    add_share(work.backward, cross.backward, share);
    add_share(work.attention_core, cross.attention_core, share);
  }
  mlp(work, call, call.tokens, static_cast<double>(call.model.ffn_hidden_size) / call.t);
  norms_and_residuals(work, call);
  const double pairs = call.model.parallel_residual ? 1 : 2;
  return seconds_of(call, choice, work, tensor_messages(call, choice, pairs),
                    context_messages(call, choice, work), {});
}

CallSeconds moe_block(const Call& call, const LayoutChoice& choice) {
  const ModelSpec& model = call.model;
  const double experts = static_cast<double>(model.num_experts);
  const double routed = static_cast<double>(model.experts_per_token);
  const double own = std::max(1.0, experts / static_cast<double>(choice.expert));
  const double expert_tensor = static_cast<double>(choice.expert_tensor);
  const double expert_width = static_cast<double>(
      model.expert_ffn_hidden_size > 0 ? model.expert_ffn_hidden_size : model.ffn_hidden_size);
  // Tokens of this rank's part of the sequence; those of its tensor peers are routed by them when
  // the sequence is split, and by everybody alike when it is not.
  const double received = call.tokens * routed * expert_tensor / call.t;
  Both work;
  attention(work, call);
  linear(work, call, call.wide_tokens, call.h, experts, false);
  passes(work.forward, call, 2 * call.wide_tokens * experts, 4);  // softmax, top k
  passes(work.backward, call, 2 * call.wide_tokens * experts, 3);
  mlp(work, call, received / own, expert_width / expert_tensor, own);
  // Tokens are sorted by expert and back, each a copy.
  passes(work.forward, call, 4 * received * call.h, 4);
  passes(work.backward, call, 4 * received * call.h, 4);
  if (model.shared_expert_ffn_hidden_size > 0) {
    mlp(work, call, call.tokens, static_cast<double>(model.shared_expert_ffn_hidden_size) / call.t);
  }
  norms_and_residuals(work, call, kRoutingKernels);
  const Placement group = expert_placement(choice, call.job);
  const double bytes = call.element * call.tokens * routed * call.h / call.t;
  const double exchange = 2 * all_to_all_s(bytes, group, call.cluster);  // dispatch, combine
  return seconds_of(call, choice, work, tensor_messages(call, choice, 1),
                    context_messages(call, choice, work), {exchange, exchange});
}

CallSeconds embedding(const Call& call, const LayoutChoice& choice) {
  Both work;
  const double values = call.tokens * call.h;
  const bool learned = call.model.position_embedding == PositionKind::kLearned;
  passes(work.forward, call, (2 + (learned ? 3 : 0)) * values, 4);
  // Gradients are sorted by token before they are added to rows.
  passes(work.backward, call, (4 + (learned ? 2 : 0)) * values, 6);
  if (call.model.hidden_dropout > 0) {
    passes(work.forward, call, 2.5 * values, 1);
    passes(work.backward, call, 2.5 * values, 1);
  }
  Messages messages;
  if (choice.tensor > 1) {
    const Placement group = tensor_placement(choice, call.job);
    const double bytes = call.element * values;
    messages.forward = choice.sequence_parallel ? reduce_scatter_s(bytes, group, call.cluster)
                                                : all_reduce_s(bytes, group, call.cluster);
    messages.backward = choice.sequence_parallel ? all_gather_s(bytes, group, call.cluster) : 0;
  }
  LayoutChoice kept = choice;
  kept.recompute = Recompute::kNone;
  return seconds_of(call, kept, work, messages, {}, {});
}

CallSeconds head(const Call& call, const LayoutChoice& choice) {
  Both work;
  norm(work, call, call.wide_tokens, call.h);
  Call plain = call;
  plain.rates = call.core_rates;  // the projection stays in 16 bits with fp8
  linear(work, plain, call.tokens, call.h, call.vocabulary, call.model.head_bias);
  const double logits = call.tokens * call.vocabulary;
  // In fp32: copy, maximum, exponentials and their sum, and the gradient in place.
  const double width = call.habits.fp32_logits ? 4 : call.element;
  work.forward.bytes += logits * (call.element + width + 4 * width);
  work.backward.bytes += logits * (2 * width + call.element + width);
  work.forward.kernels += 10;
  work.backward.kernels += 6;
  Messages messages;
  if (choice.tensor > 1) {
    const Placement group = tensor_placement(choice, call.job);
    const double bytes = call.element * call.tokens * call.h;
    // Maximum, sum and the target's logit of each token.
    messages.forward = 3 * all_reduce_s(4 * call.tokens, group, call.cluster);
    if (choice.sequence_parallel) messages.forward += all_gather_s(bytes, group, call.cluster);
    messages.backward = choice.sequence_parallel ? reduce_scatter_s(bytes, group, call.cluster)
                                                 : all_reduce_s(bytes, group, call.cluster);
  }
  LayoutChoice kept = choice;
  kept.recompute = Recompute::kNone;
  return seconds_of(call, kept, work, messages, {}, {});
}

}  // namespace

LayerSeconds layer_seconds(const JobSpec& job, const LayoutChoice& choice) {
  const Call call(job, choice);
  LayerSeconds seconds;
  seconds.block = dense_block(call, choice);
  if (job.model.num_experts > 0) seconds.moe_block = moe_block(call, choice);
  seconds.embedding = embedding(call, choice);
  seconds.head = head(call, choice);
  return seconds;
}

}  // namespace smp
