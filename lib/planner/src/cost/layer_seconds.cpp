#include "smp/planner/cost/layer_seconds.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cost/adapter_work.h"
#include "cost/block_messages.h"
#include "cost/frozen_layers.h"
#include "cost/in_engine.h"
#include "cost/kernel_work.h"
#include "cost/mamba_layer.h"
#include "cost/norms_apart.h"
#include "cost/rank_order.h"
#include "cost/routed_tokens.h"
#include "links/link_model.h"
#include "links/rate.h"
#include "smp/plan/model/frozen_parts.h"
#include "smp/plan/model/hybrid.h"
#include "smp/plan/model/operators.h"
#include "smp/plan/model/parameter_counts.h"
#include "smp/plan/program/build.h"
#include "smp/plan/program/messages.h"
#include "smp/plan/spec/recompute_modules.h"

namespace smp::cost {
namespace {

// Beside messages, each kernel waits for streams and is waited for: more to launch.
constexpr double kMessageKernels = 0.1;
// Launches run ahead of kernels by a queue, which evens out what takes turns in being slower: the
// sum of both with this exponent.
constexpr double kQueue = 6;
// Share of the bandwidth that memory-bound kernels reach (STREAM-like kernels on A100 and H100).
constexpr double kMemoryEfficiency = 0.70;

double memory_s(const PricedCall& call, double bytes) {
  const bool waves = call.core_rates.multiprocessors > 0;
  return links::over(bytes, call.cluster.memory_bytes_per_s * (waves ? kMemoryEfficiency : 1));
}

// Seconds of what is not a matmul.
double pass_s(const PricedCall& call, const KernelWork& work) {
  return memory_s(call, work.bytes) + draw_s(call, work.draws);
}

// Seconds that the processor needs to launch the kernels beyond those that they run.
// `waits_s`: that it waits besides.
double launch_s(const PricedCall& call, const KernelWork& work, double messages_s, double waits_s) {
  const double running = work.matmul_s + pass_s(call, work) + messages_s;
  const double kernels = work.kernels * (messages_s > 0 ? 1 + kMessageKernels : 1);
  const double launching = kernels * call.cluster.kernel_launch_s + waits_s;
  if (launching <= 0) return 0;
  return std::pow(std::pow(running, kQueue) + std::pow(launching, kQueue), 1 / kQueue) - running;
}

// Seconds that the messages of a block's forward and backward wait where the pipeline crosses
// hosts.
double pipeline_crossing_s(const PricedCall& call, const choice::LayoutChoice& choice) {
  const double each = call.framework.pipeline_crossing_s;
  if (each == 0 || choice.tensor == 1 || choice.pipeline == 1) return 0;
  if (boundaries_between_hosts(choice, call.job) == 0) return 0;
  // Of nanotron's runs groups over two hosts wait as those in one, groups over four twice as long.
  const double hosts = tensor_placement(choice, call.job).hosts;
  return each * (choice.tensor - 1) * std::max(1.0, hosts / 2);
}

void add(KernelWork& sum, const KernelWork& part) {
  sum.matmul_s += part.matmul_s;
  sum.bytes += part.bytes;
  sum.draws += part.draws;
  sum.kernels += part.kernels;
}

CallSeconds seconds_of(const PricedCall& call, const choice::LayoutChoice& choice,
                       const LayerWork& work, const Messages& tensor, const Messages& context,
                       const Messages& expert) {
  CallSeconds seconds;
  seconds.matmul_forward = work.forward.matmul_s;
  seconds.matmul_backward = work.backward.matmul_s;
  if (!call.trains) seconds.weights_share = 0;
  seconds.memory_forward = pass_s(call, work.forward);
  seconds.memory_backward = pass_s(call, work.backward);
  seconds.tensor_forward = tensor.forward;
  seconds.tensor_backward = tensor.backward;
  seconds.context_forward = context.forward;
  seconds.context_backward = context.backward;
  seconds.expert_forward = expert.forward;
  seconds.expert_backward = expert.backward;
  const double waits = pipeline_crossing_s(call, choice);
  seconds.launch_forward =
      launch_s(call, work.forward, tensor.forward + context.forward + expert.forward, waits / 3);
  seconds.launch_backward = launch_s(
      call, work.backward, tensor.backward + context.backward + expert.backward, 2 * waits / 3);
  if (choice.recompute == Recompute::kFull) seconds.recompute = seconds.forward();
  if (choice.recompute == Recompute::kSelective) {
    const KernelWork& again = work.selective;
    seconds.recompute = again.matmul_s + pass_s(call, again);
    if (again.kernels > 0) {
      seconds.recompute += seconds.launch_forward * again.kernels / work.forward.kernels;
    }
  }
  return seconds;
}

// Adds what selective recomputation repeats of attention. The core itself is few kernels, whose
// launches hide.
void repeat_attention(LayerWork& work, const PricedCall& call, const RecomputeModules& modules) {
  LayerWork again;
  if (modules.core_attention) {
    again.forward = work.attention_core;
    again.forward.kernels = 0;
  }
  if (modules.mla_up) latent_up(again, call);
  if (modules.norms && has_norm_before_attention(call.job)) {
    norm(again, call, call.wide_tokens, call.h);
  }
  add(work.selective, again.forward);
}

// Adds what selective recomputation repeats of a dense MLP: its norm where that is a part of the
// first matmul, or asked for itself.
void repeat_mlp(LayerWork& work, const PricedCall& call, const RecomputeModules& modules,
                double width) {
  LayerWork again;
  const bool apart = has_norm_before_mlp(call.job);
  const bool repeated = call.model.shared_norm && apart;  // with attention
  if (!repeated && (apart ? modules.norms : modules.mlp)) {
    norm(again, call, call.wide_tokens, call.h);
  }
  if (modules.mlp) mlp(again, call, call.tokens, width);
  add(work.selective, again.forward);
}

// The messages of a dense MLP that is recomputed: Megatron's checkpoint holds the gather before its
// first matmul and the reduction after its second.
double repeated_mlp_messages(const PricedCall& call, const choice::LayoutChoice& choice) {
  const bool repeats = choice.recompute == Recompute::kSelective && !recomputes_mlps(call.job) &&
                       recompute_modules(call.job.parallel).mlp;
  if (!repeats) return 0;
  return tensor_messages(call, choice, 1, call.job.parallel.tensor_parallel.mlp ? 1 : 0, 0).forward;
}

// `attends_twice`: a decoder's block, which attends to the encoder output too.
CallSeconds dense_block(const PricedCall& call, const choice::LayoutChoice& choice,
                        bool attends_twice) {
  LayerWork work;
  attention(work, call);
  if (attends_twice) {
    norm(work, call, call.wide_tokens, call.h);
    attention(work, call);
    residual(work, call);
  }
  const double width = static_cast<double>(call.model.ffn_hidden_size) / call.mlp_ranks;
  LayerWork again;
  if (recomputes_mlps(call.job)) {  // the MLP's first product again, of its norm again
    norm(again, call, call.wide_tokens, call.h);
    linear(again, call, call.tokens, call.h, is_gated(call.model.mlp) ? 2 * width : width, false);
  } else {
    const RecomputeModules modules = recompute_modules(call.job.parallel);
    repeat_attention(work, call, modules);
    repeat_mlp(work, call, modules, width);
  }
  add(work.selective, again.forward);
  mlp(work, call, call.tokens, width);
  norms_and_residuals(work, call);
  const auto kind = attends_twice ? model::LayerKind::kCrossBlock : model::LayerKind::kBlock;
  adapters(work, call, kind);
  const TensorKinds& kinds = call.job.parallel.tensor_parallel;
  const double attentions = attends_twice ? 2 : 1;
  const double parts = call.model.parallel_residual ? 1 : 1 + attentions;
  const double pairs =
      std::min(parts, (kinds.attention ? attentions : 0.0) + (kinds.mlp ? 1.0 : 0.0));
  const Messages tensor = with_adapters(tensor_messages(call, choice, parts, pairs, attentions - 1),
                                        adapter_messages(call, choice, kind));
  CallSeconds seconds =
      seconds_of(call, choice, work, tensor, context_messages(call, choice, work), {});
  seconds.recompute += repeated_mlp_messages(call, choice);
  return seconds;
}

CallSeconds moe_block(const PricedCall& call, const choice::LayoutChoice& choice) {
  const ModelSpec& model = call.model;
  const double experts = static_cast<double>(model.num_experts);
  // On average: what a capacity drops, and what fills it.
  const double routed = within_capacity(model, 1) * static_cast<double>(model.experts_per_token);
  const double own = std::max(1.0, experts / static_cast<double>(choice.expert));
  const double expert_tensor = static_cast<double>(choice.expert_tensor);
  const double expert_width = static_cast<double>(
      model.expert_ffn_hidden_size > 0 ? model.expert_ffn_hidden_size : model.ffn_hidden_size);
  // Tokens of this rank's part of the sequence; those of its tensor peers are routed by them when
  // the sequence is split, and by everybody alike when it is not.
  const double received = call.tokens * routed * expert_tensor / call.t;
  const bool alone = model::is_hybrid(model);  // attention is a layer of its own
  LayerWork work;
  if (!alone) attention(work, call);
  const RecomputeModules modules = recompute_modules(call.job.parallel);
  if (!alone) repeat_attention(work, call, modules);
  LayerWork mixture;
  linear(mixture, call, call.wide_tokens, call.h, experts, false);
  passes(mixture.forward, call, 2 * call.wide_tokens * experts, 4);  // softmax, top k
  passes(mixture.backward, call, 2 * call.wide_tokens * experts, 3);
  mlp(mixture, call, received / own, expert_width / expert_tensor, own);
  // Tokens are sorted by expert and back, each a copy.
  passes(mixture.forward, call, 4 * received * call.h, 4);
  passes(mixture.backward, call, 4 * received * call.h, 4);
  LayerWork shared;
  if (model.shared_expert_ffn_hidden_size > 0) {
    mlp(shared, call, call.tokens,
        static_cast<double>(model.shared_expert_ffn_hidden_size) / call.mlp_ranks);
  }
  for (const LayerWork* part : {&mixture, &shared}) {
    add(work.forward, part->forward);
    add(work.backward, part->backward);
  }
  if (modules.moe) add(work.selective, mixture.forward);
  if (modules.moe || modules.shared_experts) add(work.selective, shared.forward);
  if (modules.moe_activation && !modules.moe) {
    const double values = received * expert_width / expert_tensor;
    passes(work.selective, call, (is_gated(model.mlp) ? 3 : 2) * values, 1);
  }
  if (modules.norms) {
    LayerWork again;
    norm(again, call, call.wide_tokens, call.h);
    add(work.selective, again.forward);
  }
  norms_and_residuals(work, call, call.framework.routing_operators, alone ? 1 : 2);
  if (!alone) {
    adapters(work, call, model::LayerKind::kMoeBlock, {received / own, own, expert_tensor});
  }
  const links::Placement group = expert_placement(choice, call.job);
  const double bytes = call.element * call.tokens * routed * call.h / call.t;
  const double exchange = 2 * links::all_to_all_s(bytes, group, call.cluster);  // dispatch, combine
  const Messages experts_only{exchange, exchange};
  const double repeated = choice.recompute == Recompute::kSelective && modules.moe ? exchange : 0;
  if (alone) {
    CallSeconds seconds = seconds_of(call, choice, work, {}, {}, experts_only);
    seconds.recompute += repeated;
    return seconds;
  }
  const double pairs = call.job.parallel.tensor_parallel.attention ? 1 : 0;
  const Messages tensor =
      with_adapters(tensor_messages(call, choice, 1, pairs, 0),
                    adapter_messages(call, choice, model::LayerKind::kMoeBlock));
  CallSeconds seconds =
      seconds_of(call, choice, work, tensor, context_messages(call, choice, work), experts_only);
  seconds.recompute += repeated;
  return seconds;
}

// A layer of a hybrid that is no layer of experts.
CallSeconds mixer(const PricedCall& call, const choice::LayoutChoice& choice, char letter) {
  const TensorKinds& kinds = call.job.parallel.tensor_parallel;
  const RecomputeModules modules = recompute_modules(call.job.parallel);
  LayerWork work;
  Messages context;
  if (letter == model::kMambaLetter) {
    mamba(work, call);
    const double each = mamba_exchange_s(call, choice);
    context = {each, each};
  } else if (letter == model::kAttentionLetter) {
    attention(work, call);
    repeat_attention(work, call, modules);
    context = context_messages(call, choice, work);
  } else {
    const double width = static_cast<double>(call.model.ffn_hidden_size) / call.mlp_ranks;
    mlp(work, call, call.tokens, width);
    repeat_mlp(work, call, modules, width);
  }
  norms_and_residuals(work, call, 0, 1);
  const bool is_cut = letter == model::kMlpLetter ? kinds.mlp : kinds.attention;
  CallSeconds seconds = seconds_of(
      call, choice, work, tensor_messages(call, choice, 1, is_cut ? 1 : 0, 0), context, {});
  if (letter == model::kMlpLetter) seconds.recompute += repeated_mlp_messages(call, choice);
  return seconds;
}

CallSeconds embedding(const PricedCall& call, const choice::LayoutChoice& choice) {
  LayerWork work;
  const double values = call.tokens * call.h;
  const bool learned = call.model.position_embedding == PositionKind::kLearned;
  passes(work.forward, call, (2 + (learned ? 3 : 0)) * values, 4);
  // Gradients are sorted by token before they are added to rows.
  passes(work.backward, call, (4 + (learned ? 2 : 0)) * values, 6);
  // An encoder_decoder embeds two sequences.
  const double sequences = call.model.stack == Stack::kEncoderDecoder ? 2 : 1;
  if (call.model.hidden_dropout > 0) {
    dropout(work, call, sequences * call.wide_tokens, call.h);
  }
  Messages messages;
  if (choice.tensor > 1) {
    const links::Placement group = tensor_placement(choice, call.job);
    const links::CollectiveBackend how = links::exchange_of(call.job, mesh::Axis::kTensor);
    const double bytes = call.element * values;
    if (call.job.parallel.tensor_parallel.embedding) {
      messages.forward = choice.sequence_parallel
                             ? links::reduce_scatter_s(bytes, group, call.cluster, how)
                             : links::all_reduce_s(bytes, group, call.cluster, how);
    }
    messages.backward =
        choice.sequence_parallel ? links::all_gather_s(bytes, group, call.cluster, how) : 0;
  }
  choice::LayoutChoice kept = choice;
  kept.recompute = Recompute::kNone;
  return seconds_of(call, kept, work, messages, {}, {});
}

CallSeconds head(const PricedCall& call, const choice::LayoutChoice& choice) {
  LayerWork work;
  norm(work, call, call.wide_tokens, call.h);
  // What both stacks of an encoder_decoder give; the encoder's is the first decoder block's.
  if (call.model.stack == Stack::kEncoderDecoder && call.model.hidden_dropout > 0) {
    dropout(work, call, 2 * call.wide_tokens, call.h);
  }
  PricedCall plain = call;
  plain.rates = call.core_rates;  // the projection stays in 16 bits with fp8
  plain.stored_bytes = 0;         // and is not quantized
  linear(work, plain, call.tokens, call.h, call.vocabulary, call.model.head_bias);
  const double logits = call.tokens * call.vocabulary;
  // In fp32: copy, maximum, exponentials and their sum, and the gradient in place.
  const double width = call.framework.fp32_logits ? 4 : call.element;
  work.forward.bytes += logits * (call.element + width + 4 * width);
  work.backward.bytes += logits * (2 * width + call.element + width);
  work.forward.kernels += 10;
  work.backward.kernels += 6;
  Messages messages;
  if (choice.tensor > 1) {
    const links::Placement group = tensor_placement(choice, call.job);
    const links::CollectiveBackend how = links::exchange_of(call.job, mesh::Axis::kTensor);
    const double bytes = call.element * call.tokens * call.h;
    if (call.job.parallel.tensor_parallel.embedding) {
      // Maximum, sum and the target's logit of each token.
      messages.forward = 3 * links::all_reduce_s(4 * call.tokens, group, call.cluster, how);
      messages.backward = choice.sequence_parallel
                              ? links::reduce_scatter_s(bytes, group, call.cluster, how)
                              : links::all_reduce_s(bytes, group, call.cluster, how);
    }
    if (choice.sequence_parallel)
      messages.forward += links::all_gather_s(bytes, group, call.cluster, how);
  }
  choice::LayoutChoice kept = choice;
  kept.recompute = Recompute::kNone;
  return seconds_of(call, kept, work, messages, {}, {});
}

Messages list_messages(const PricedCall& call, const choice::LayoutChoice& choice,
                       const model::LayerSpec& layer) {
  Messages messages;
  if (choice.tensor == 1) return messages;
  const links::Placement group = tensor_placement(choice, call.job);
  const links::CollectiveBackend how = links::exchange_of(call.job, mesh::Axis::kTensor);
  const program::LayerProgram program = program::build(call.model, layer,
                                                       {.micro_batch = choice.micro_batch,
                                                        .tensor_degree = choice.tensor,
                                                        .dtype = engine_dtype(choice.precision)});
  const auto seconds = [&](program::Section section) {
    double sum = 0;
    for (const program::ProgramMessage& message : program::messages_of(program, section)) {
      const auto bytes = static_cast<double>(bytes_of(message.dtype) * message.count);
      // A gather's count is that of each rank.
      sum += message.op == mesh::CollectiveOp::kAllGather
                 ? links::all_gather_s(bytes * static_cast<double>(choice.tensor), group,
                                       call.cluster, how)
                 : links::all_reduce_s(bytes, group, call.cluster, how);
    }
    return sum;
  };
  messages.forward = seconds(program::Section::kForward);
  messages.backward = seconds(program::Section::kBackward);
  return messages;
}

// One layer of a list: its product, and a pass of each operator over what it reads and writes,
// three more where a product's patches are copied.
CallSeconds operators(const PricedCall& call, const choice::LayoutChoice& choice,
                      const model::LayerSpec& layer) {
  LayerWork work;
  for (const model::PlacedOperator& placed :
       model::operators_of(call.model, layer, {choice.tensor, 0})) {
    const model::OperatorRules& rules = model::rules_of(placed.spec.kind);
    const auto in = static_cast<double>(model::elements_of(placed.in));
    const auto out = static_cast<double>(model::elements_of(placed.out));
    double values = call.batch * (in + out);
    if (rules.has_matrix) {
      const auto outputs = static_cast<double>(placed.out[0]);
      const double rows = call.batch * out / outputs;
      const auto cols = static_cast<double>(rules.parameters(placed.spec, placed.in)[0].cols);
      linear(work, call, rows, cols, outputs, true);
      values = placed.in.size() == 1 ? 0 : 3 * rows * cols;
    }
    if (placed.spec.kind == OperatorKind::kDropout) {
      dropout(work, call, call.batch, out);
      continue;
    }
    passes(work.forward, call, values, 1);
    passes(work.backward, call, values, 1);
  }
  choice::LayoutChoice here = choice;
  if (model::makes_loss(layer.kind)) here.recompute = Recompute::kNone;
  return seconds_of(call, here, work, list_messages(call, choice, layer), {}, {});
}

// A forward alone.
void forward_alone(CallSeconds& call) {
  call.matmul_backward = call.memory_backward = call.launch_backward = call.recompute = 0;
  call.tensor_backward = call.context_backward = call.expert_backward = 0;
}

// Both, one after the other.
CallSeconds sum_of(const CallSeconds& a, const CallSeconds& b) {
  CallSeconds sum = a;
  for (double CallSeconds::*part :
       {&CallSeconds::matmul_forward, &CallSeconds::matmul_backward, &CallSeconds::memory_forward,
        &CallSeconds::memory_backward, &CallSeconds::launch_forward, &CallSeconds::launch_backward,
        &CallSeconds::recompute, &CallSeconds::tensor_forward, &CallSeconds::tensor_backward,
        &CallSeconds::context_forward, &CallSeconds::context_backward, &CallSeconds::expert_forward,
        &CallSeconds::expert_backward}) {
    sum.*part += b.*part;
  }
  const double weights = a.matmul_backward * a.weights_share + b.matmul_backward * b.weights_share;
  if (sum.matmul_backward > 0) sum.weights_share = weights / sum.matmul_backward;
  return sum;
}

CallSeconds block(const PricedCall& call, const choice::LayoutChoice& choice,
                  const model::LayerSpec& layer) {
  const ModelSpec& model = call.model;
  if (layer.kind == model::LayerKind::kCrossBlock) return dense_block(call, choice, true);
  if (model::has_experts(model, layer)) return moe_block(call, choice);
  if (!model::is_hybrid(model)) return dense_block(call, choice, false);
  return mixer(call, choice, model::layer_letter(model, layer.index - 1));
}

}  // namespace

CallSeconds call_seconds(const JobSpec& job, const choice::LayoutChoice& choice,
                         const model::LayerSpec& layer, bool is_frozen) {
  const PricedCall trained(job, choice);
  if (model::is_list(job.model)) return operators(trained, choice, layer);
  PricedCall frozen = trained;
  frozen.trains = false;
  frozen.stored_bytes = quantized_bytes(job.training.lora.quantized);
  const bool fine_tunes = model::freezes_weights(job);
  const model::FrozenParts parts = fine_tunes ? model::frozen_parts(job) : model::FrozenParts{};
  if (layer.kind == model::LayerKind::kEmbedding) {
    CallSeconds seconds = embedding(trained, choice);
    if (!trains_blocks(job) || parts.embedding) forward_alone(seconds);
    return seconds;
  }
  const PricedCall& end = trains_projection(job) ? trained : frozen;
  if (layer.kind == model::LayerKind::kHead) return head(end, choice);
  const bool trains = trains_blocks(job) && !is_frozen;
  CallSeconds seconds = block(trains ? trained : frozen, choice, layer);
  if (is_frozen && parts.first_blocks_end_backward()) forward_alone(seconds);
  // A layer that predicts a further token is a block and a head.
  if (layer.kind == model::LayerKind::kMtpBlock) return sum_of(seconds, head(end, choice));
  return seconds;
}

LayerSeconds layer_seconds(const JobSpec& job, const choice::LayoutChoice& choice,
                           std::shared_ptr<const LayerKinds> kinds) {
  LayerSeconds seconds;
  seconds.kinds = std::move(kinds);
  for (size_t i = 0; i < seconds.kinds->size(); ++i) {
    const LayerKinds::Kind& kind = (*seconds.kinds)[i];
    seconds.of_kind.push_back(call_seconds(job, choice, kind.layer, kind.is_frozen));
  }
  return seconds;
}

LayerSeconds layer_seconds(const JobSpec& job, const choice::LayoutChoice& choice) {
  return layer_seconds(job, choice, std::make_shared<LayerKinds>(job));
}

}  // namespace smp::cost
