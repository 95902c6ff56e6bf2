#include "cost/message_seconds.h"

#include <algorithm>

#include "cost/operation_work.h"
#include "cost/rank_order.h"
#include "cost/routed_tokens.h"
#include "links/link_model.h"
#include "smp/plan/program/messages.h"

namespace smp::cost {
namespace {

using program::OperationKind;

// What travels beside the gradient of a product's input.
constexpr std::string_view kHidden = "tensor.again";

double tensor_s(const PricedCall& call, const choice::LayoutChoice& choice,
                const program::ProgramMessage& message, bool is_in_block) {
  if (choice.tensor == 1 || message.label == kHidden) return 0;
  const links::Placement group = tensor_placement(choice, call.job);
  const links::CollectiveBackend how = links::exchange_of(call.job, mesh::Axis::kTensor);
  double bytes = static_cast<double>(bytes_of(message.dtype)) * static_cast<double>(message.count);
  const bool gathers = message.op == mesh::CollectiveOp::kAllGather;
  if (gathers) bytes *= choice.tensor;  // its count is that of each rank
  const double seconds = gathers ? links::all_gather_s(bytes, group, call.cluster, how)
                         : message.op == mesh::CollectiveOp::kReduceScatter
                             ? links::reduce_scatter_s(bytes, group, call.cluster, how)
                             : links::all_reduce_s(bytes, group, call.cluster, how);
  if (!is_in_block) return seconds;
  const double over = call.framework.tensor_crossing_s * static_cast<double>(group.hosts - 1);
  const double shown = choice.sequence_parallel ? 1 - call.framework.tensor_hidden : 1;
  return shown * (seconds + over);
}

// The first hop has nothing to hide behind.
double ring_s(const PricedCall& call, const choice::LayoutChoice& choice,
              const program::LayerProgram& program, const program::Operation& attention) {
  const links::Placement group = context_placement(choice, call.job);
  const auto& a = attention.as<program::AttentionAttributes>();
  const double bytes = call.element * static_cast<double>(a.batch * a.sequence * a.kv_heads *
                                                          (a.head_dim + a.value_width()));
  const double hops = static_cast<double>(choice.context - 1);
  const double hop = links::send_s(bytes, group.hosts == 1, call.cluster);
  const bool is_forward = attention.kind == OperationKind::kAttention;
  program::Operation forward = attention;
  forward.kind = OperationKind::kAttention;
  const double computing = work_of(call, program, forward).matmul_s / choice.context;
  const double each = is_forward ? 1 : 2;
  return each * hop + (hops - 1) * std::max(0.0, each * (hop - computing));
}

}  // namespace

void add_messages(MessageSeconds& sum, const PricedCall& call, const choice::LayoutChoice& choice,
                  const program::LayerProgram& program, const program::Operation& operation,
                  bool is_in_block) {
  const bool attends = operation.kind == OperationKind::kAttention ||
                       operation.kind == OperationKind::kAttentionBackward;
  if (attends) {
    if (choice.context > 1) sum.context += ring_s(call, choice, program, operation);
    return;
  }
  for (const program::ProgramMessage& message : program::messages_of(program, operation)) {
    if (message.label.starts_with("tensor.")) {
      sum.tensor += tensor_s(call, choice, message, is_in_block);
      continue;
    }
    const auto bytes =
        static_cast<double>(bytes_of(message.dtype)) * static_cast<double>(message.count);
    if (message.label.starts_with("context.")) {
      sum.context += links::all_to_all_s(bytes, context_placement(choice, call.job), call.cluster);
      continue;
    }
    // An even share of the tokens, each as often as it has experts.
    const double columns = static_cast<double>(program.value(operation.in(0)).shape.back().size);
    const double rows = within_capacity(call.model, 1) * call.tokens *
                        static_cast<double>(call.model.experts_per_token) / call.t;
    sum.expert += links::all_to_all_s(call.element * rows * columns,
                                      expert_placement(choice, call.job), call.cluster);
  }
}

}  // namespace smp::cost
