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

// Of each hop what its attention does not hide. Our engine attends to its own keys while the first
// ones come; backward the first keys have nothing to hide behind, and gradients travel in fp32.
double ring_s(const PricedCall& call, const choice::LayoutChoice& choice,
              const program::LayerProgram& program, const program::Operation& attention) {
  const auto& a = attention.as<program::AttentionAttributes>();
  const double hops = static_cast<double>(a.context_degree - 1);
  if (hops == 0) return 0;
  const links::Placement group = ring_placement(choice, call.job);
  const double elements =
      static_cast<double>(a.batch * a.sequence * a.kv_heads * (a.head_dim + a.value_width()));
  const auto send_s = [&](double bytes) {
    return links::send_s(bytes * elements, group.hosts == 1, call.cluster);
  };
  const double hop = send_s(call.element);
  const bool is_forward = attention.kind == OperationKind::kAttention;
  program::Operation forward = attention;
  forward.kind = OperationKind::kAttention;
  const double degree = hops + 1;
  const double computing = work_of(call, program, forward).matmul_s / degree;
  if (!call.job.parallel.framework.is_engine()) {
    const double each = is_forward ? 1 : 2;
    return each * hop + (hops - 1) * std::max(0.0, each * (hop - computing));
  }
  if (is_forward) return hops * std::max(0.0, hop - computing);
  const double backward = work_of(call, program, attention).matmul_s / degree;
  const double gradients = send_s(std::max(4.0, call.element));
  return hop + (hops - 1) * std::max(0.0, hop + gradients - backward) +
         std::max(0.0, gradients - backward);
}

// Of rows that go to the ranks of their experts. The shared expert hides nothing of it here.
double rows_s(const PricedCall& call, const choice::LayoutChoice& choice,
              const program::LayerProgram& program, const program::Operation& operation,
              const program::RowExchangeAttributes& exchange) {
  const program::Value& sent = program.value(operation.in(0));
  const auto first = static_cast<double>(sent.shape.front().size);
  const double rows =
      operation.kind == OperationKind::kExpertCounts ? first : exchange.expected_rows;
  const double bytes = rows * static_cast<double>(sent.elements()) / first *
                       static_cast<double>(bytes_of(sent.dtype));
  return links::all_to_all_s(bytes, expert_placement(choice, call.job), call.cluster);
}

}  // namespace

void add_messages(MessageSeconds& sum, const PricedCall& call, const choice::LayoutChoice& choice,
                  const program::LayerProgram& program, const program::Operation& operation,
                  bool is_in_block) {
  const bool attends = operation.kind == OperationKind::kAttention ||
                       operation.kind == OperationKind::kAttentionBackward;
  if (attends) {
    sum.context += ring_s(call, choice, program, operation);
    return;
  }
  const auto* exchange = std::get_if<program::RowExchangeAttributes>(&operation.attributes);
  if (exchange != nullptr) {
    if (program::messages_of(program, operation).empty()) return;  // within the rank
    sum.expert += rows_s(call, choice, program, operation, *exchange);
    return;
  }
  for (const program::ProgramMessage& message : program::messages_of(program, operation)) {
    if (message.label.starts_with("tensor.")) {
      sum.tensor += tensor_s(call, choice, message, is_in_block);
      continue;
    }
    const auto bytes =
        static_cast<double>(bytes_of(message.dtype)) * static_cast<double>(message.count);
    if (operation.kind == OperationKind::kRouteBackward) {
      const links::Placement group = message.axis == mesh::Axis::kRing
                                         ? ring_placement(choice, call.job)
                                         : exchange_placement(choice, call.job);
      sum.context += links::all_reduce_s(bytes, group, call.cluster);
      continue;
    }
    if (operation.kind == OperationKind::kExchange) {
      sum.context += links::all_to_all_s(bytes * choice.exchange,
                                         exchange_placement(choice, call.job), call.cluster);
      continue;
    }
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
