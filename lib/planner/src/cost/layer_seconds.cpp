#include "smp/planner/cost/layer_seconds.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cost/adapter_work.h"
#include "cost/frozen_layers.h"
#include "cost/in_engine.h"
#include "cost/layer_program.h"
#include "cost/message_seconds.h"
#include "cost/operation_work.h"
#include "cost/rank_order.h"
#include "links/rate.h"
#include "smp/plan/model/frozen_parts.h"
#include "smp/plan/model/hybrid.h"
#include "smp/plan/model/operators.h"
#include "smp/plan/model/parameter_counts.h"

namespace smp::cost {
namespace {

using program::Section;

// Beside messages, each kernel waits for streams and is waited for: more to launch.
constexpr double kMessageKernels = 0.1;
// Launches run ahead of kernels by a queue, which evens out what takes turns in being slower: the
// sum of both with this exponent.
constexpr double kQueue = 6;
// Share of the bandwidth that memory-bound kernels reach (STREAM-like kernels on A100 and H100).
constexpr double kMemoryEfficiency = 0.70;
// Operators of a block's forward that torch.compile leaves.
constexpr double kCompiledOperators = 30;

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

// Seconds that the messages of a layer's forward and backward wait where the pipeline crosses
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

// What a section takes.
struct SectionSeconds {
  KernelWork work;
  MessageSeconds messages;
  double weights_s = 0;  // of the matmuls: gradients of weights
};

bool makes_weight_gradient(const program::Operation& operation) {
  switch (operation.kind) {
    case program::OperationKind::kWeightGradient:
    case program::OperationKind::kExpertWeightGradient:
    case program::OperationKind::kRouterWeightGradient:
    case program::OperationKind::kConvolutionWeightGradient: return true;
    default: return false;
  }
}

// The core of attention is few kernels.
bool is_core(const program::Operation& operation) {
  switch (operation.kind) {
    case program::OperationKind::kAttention:
    case program::OperationKind::kScores:
    case program::OperationKind::kSoftmax:
    case program::OperationKind::kWeightedValues: return true;
    case program::OperationKind::kDrop:
      return operation.as<program::DropoutAttributes>().site == program::DropoutSite::kAttention;
    default: return false;
  }
}

SectionSeconds seconds_of(const PricedCall& call, const choice::LayoutChoice& choice,
                          const program::LayerProgram& program, Section section, bool is_block) {
  SectionSeconds seconds;
  for (const program::Operation& operation : program.section(section)) {
    KernelWork work = work_of(call, program, operation);
    if (makes_weight_gradient(operation)) seconds.weights_s += work.matmul_s;
    if (section == Section::kRematerialize && is_core(operation)) work.kernels = 0;
    add(seconds.work, work);
    add_messages(seconds.messages, call, choice, program, operation, is_block);
  }
  return seconds;
}

// Views, casts and small sums that a block's counts leave out.
double further_kernels(const PricedCall& call, const model::LayerSpec& layer, double counted) {
  if (model::is_list(call.model)) return 0;
  const double mixers = model::is_hybrid(call.model) ? 1 : 2;
  double all = (call.training.compiled ? kCompiledOperators : call.framework.operators_per_block) *
               mixers / 2;
  if (model::has_experts(call.model, layer)) all += call.framework.routing_operators;
  return std::max(0.0, all - counted);
}

ExpertRows expert_rows(const program::LayerProgram& program, const choice::LayoutChoice& choice) {
  for (const program::Operation& operation : program.section(Section::kForward)) {
    if (operation.kind != program::OperationKind::kExpertProduct) continue;
    const auto& experts = operation.as<program::ExpertAttributes>();
    const auto own = static_cast<double>(experts.count);
    return {experts.expected_rows / own, own, static_cast<double>(choice.expert_tensor)};
  }
  return {};
}

PricedCall priced_call(const JobSpec& job, const choice::LayoutChoice& choice,
                       const model::LayerSpec& layer, bool is_frozen) {
  PricedCall call(job, choice);
  call.trains = trains(job, layer, is_frozen);
  if (!call.trains) call.stored_bytes = quantized_bytes(job.training.lora.quantized);
  if (layer.kind == model::LayerKind::kHead) {
    call.rates = call.core_rates;  // the projection stays in 16 bits with fp8
    call.cast_bytes = 0;
    call.stored_bytes = 0;  // and is not quantized
  }
  return call;
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

CallSeconds sum_of_operations(const JobSpec& job, const choice::LayoutChoice& choice,
                              const model::LayerSpec& layer, bool is_frozen,
                              const program::LayerProgram& program) {
  const PricedCall call = priced_call(job, choice, layer, is_frozen);
  const bool is_block = model::is_transformer_block(layer.kind);
  SectionSeconds forward = seconds_of(call, choice, program, Section::kForward, is_block);
  SectionSeconds backward = seconds_of(call, choice, program, Section::kBackward, is_block);
  SectionSeconds again = seconds_of(call, choice, program, Section::kRematerialize, is_block);
  if (is_block) {
    const double counted = forward.work.kernels;
    const double more = further_kernels(call, layer, counted);
    forward.work.kernels += more;
    backward.work.kernels += 2 * more;
    if (counted > 0) again.work.kernels *= 1 + more / counted;
    const model::LayerKind block = block_of(job.model, layer);
    LayerWork adapted;
    adapters(adapted, call, block, expert_rows(program, choice));
    add(forward.work, adapted.forward);
    add(backward.work, adapted.backward);
    const AdapterMessages sums = adapter_messages(call, choice, block);
    forward.messages.tensor += sums.forward;
    backward.messages.tensor += sums.backward;
  }

  CallSeconds seconds;
  seconds.matmul_forward = forward.work.matmul_s;
  seconds.matmul_backward = backward.work.matmul_s;
  seconds.weights_share =
      backward.work.matmul_s > 0 ? backward.weights_s / backward.work.matmul_s : 0;
  seconds.memory_forward = pass_s(call, forward.work);
  seconds.memory_backward = pass_s(call, backward.work);
  seconds.tensor_forward = forward.messages.tensor;
  seconds.tensor_backward = backward.messages.tensor;
  seconds.context_forward = forward.messages.context;
  seconds.context_backward = backward.messages.context;
  seconds.expert_forward = forward.messages.expert;
  seconds.expert_backward = backward.messages.expert;
  const double waits = pipeline_crossing_s(call, choice);
  seconds.launch_forward = launch_s(call, forward.work, forward.messages.all(), waits / 3);
  seconds.launch_backward = launch_s(call, backward.work, backward.messages.all(), 2 * waits / 3);
  if (!is_block) return seconds;
  if (choice.recompute == Recompute::kFull) seconds.recompute = seconds.forward();
  if (choice.recompute == Recompute::kSelective) {
    seconds.recompute = again.work.matmul_s + pass_s(call, again.work) + again.messages.all();
    if (again.work.kernels > 0) {
      seconds.recompute += seconds.launch_forward * again.work.kernels / forward.work.kernels;
    }
  }
  return seconds;
}

}  // namespace

CallSeconds call_seconds(const JobSpec& job, const choice::LayoutChoice& choice,
                         const model::LayerSpec& layer, bool is_frozen,
                         const program::LayerProgram& program) {
  CallSeconds seconds = sum_of_operations(job, choice, layer, is_frozen, program);
  if (model::freezes_weights(job)) {
    const model::FrozenParts parts = model::frozen_parts(job);
    const bool embeds = layer.kind == model::LayerKind::kEmbedding;
    if ((embeds && (!trains_blocks(job) || parts.embedding)) ||
        (is_frozen && parts.first_blocks_end_backward())) {
      forward_alone(seconds);
    }
  }
  if (layer.kind != model::LayerKind::kMtpBlock || runs_in_engine(job)) return seconds;
  // A layer that predicts a further token ends with a head of its own.
  const model::LayerSpec head{model::LayerKind::kHead, layer.index + 1, "", std::nullopt, 0, 0};
  return sum_of(seconds, sum_of_operations(job, choice, head, false,
                                           layer_program(job, choice, head, false)));
}

CallSeconds call_seconds(const JobSpec& job, const choice::LayoutChoice& choice,
                         const model::LayerSpec& layer, bool is_frozen) {
  return call_seconds(job, choice, layer, is_frozen, layer_program(job, choice, layer, is_frozen));
}

}  // namespace smp::cost
