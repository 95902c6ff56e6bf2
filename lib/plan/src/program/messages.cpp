#include "smp/plan/program/messages.h"

#include <cmath>

namespace smp::program {
namespace {

// Ring attention: each rank's keys and values go once round the ranks that share the sequence, and
// backward their gradients with them (Liu et al. 2023, arXiv:2310.01889), in fp32 where elements
// have 16 bits.
std::vector<ProgramMessage> ring_messages(const LayerProgram& program, const Operation& operation) {
  const auto& a = operation.as<AttentionAttributes>();
  if (a.context_degree == 1) return {};
  const bool is_forward = operation.kind == OperationKind::kAttention;
  const int64_t count = a.batch * a.sequence * a.kv_heads * (a.head_dim + a.value_width());
  std::vector<ProgramMessage> messages;
  const DType dtype = program.value(operation.in(0)).dtype;
  const auto send = [&](DType sent) {
    messages.push_back({is_forward ? "context.forward" : "context.backward",
                        mesh::CollectiveOp::kSend, sent, count, mesh::Axis::kRing});
  };
  for (int64_t hop = 1; hop < a.context_degree; ++hop) {
    send(dtype);
    if (!is_forward) send(wide(dtype));
  }
  return messages;
}

// The choices of each expert, summed round the ring and then over those that exchange heads.
std::vector<ProgramMessage> router_messages(const LayerProgram& program,
                                            const Operation& operation) {
  const auto& router = operation.as<RouterAttributes>();
  if (!router.sums_choices()) return {};
  const int64_t tokens = program.value(operation.in(0)).shape.front().size;
  const auto sum = [&](mesh::Axis axis) {
    return ProgramMessage{"context.router", mesh::CollectiveOp::kAllReduce, DType::kF64,
                          router.segments(tokens) * router.experts, axis};
  };
  std::vector<ProgramMessage> messages;
  if (router.context.ring > 1) messages.push_back(sum(mesh::Axis::kRing));
  if (router.context.exchange > 1) messages.push_back(sum(mesh::Axis::kExchange));
  return messages;
}

// To the other ranks that share the experts. At most a rank sends all rows that it has room for.
std::vector<ProgramMessage> row_messages(const LayerProgram& program, const Operation& operation) {
  const auto& exchange = operation.as<RowExchangeAttributes>();
  const Value& sent = program.value(operation.in(0));
  if (operation.kind == OperationKind::kExpertCounts) {
    return {{exchange.label, mesh::CollectiveOp::kAllToAll, sent.dtype,
             sent.elements() / exchange.degree, mesh::Axis::kExpert}};
  }
  const int64_t cols = sent.elements() / sent.shape.front().size;
  const int64_t others = exchange.degree - 1;
  const double to_each = exchange.expected_rows / static_cast<double>(exchange.degree);
  const ProgramMessage one{.label = exchange.label,
                           .op = mesh::CollectiveOp::kSend,
                           .dtype = sent.dtype,
                           .count = std::llround(to_each * static_cast<double>(cols)),
                           .axis = mesh::Axis::kExpert,
                           .most = (sent.elements() + others - 1) / others};
  return std::vector<ProgramMessage>(static_cast<size_t>(others), one);
}

}  // namespace

bool waits(const Operation& operation) {
  if (const auto* message = std::get_if<MessageAttributes>(&operation.attributes)) {
    return message->waits;
  }
  const auto* exchange = std::get_if<RowExchangeAttributes>(&operation.attributes);
  return exchange == nullptr || exchange->waits;
}

std::vector<ProgramMessage> messages_of(const LayerProgram& program, const Operation& operation) {
  const OperationRules& rules = rules_of(operation.kind);
  if (rules.kernel == KernelClass::kMessage &&
      std::holds_alternative<RowExchangeAttributes>(operation.attributes)) {
    return row_messages(program, operation);
  }
  if (rules.kernel == KernelClass::kAttention &&
      std::holds_alternative<AttentionAttributes>(operation.attributes)) {
    return ring_messages(program, operation);
  }
  if (operation.kind == OperationKind::kRouteBackward) return router_messages(program, operation);
  const bool is_loss = operation.kind == OperationKind::kSoftmaxLoss;
  if (rules.kernel != KernelClass::kMessage && !is_loss) return {};
  const Value& sent = program.value(operation.in(0));
  if (is_loss) {
    if (!operation.as<LossAttributes>().is_shared) return {};
    const int64_t rows = sent.shape.front().size;
    const DType dtype = wide(sent.dtype);
    // The maxima; the sums of exponentials and the targets' logits.
    const ProgramMessage of_rows{"tensor.loss", mesh::CollectiveOp::kAllReduce, dtype, rows};
    if (operation.as<LossAttributes>().sums_apart) return {of_rows, of_rows, of_rows};
    return {of_rows, {"tensor.loss", mesh::CollectiveOp::kAllReduce, dtype, 2 * rows}};
  }
  if (operation.kind == OperationKind::kGatherChannels) {
    // All parts are as large as the largest.
    const auto& [cut, place] = operation.as<ChannelAttributes>();
    return {{"tensor.forward", rules.message, sent.dtype,
             sent.shape.front().size * cut.size({place.degree, 0})}};
  }
  if (operation.kind == OperationKind::kExchange) {
    const auto& exchange = operation.as<ExchangeAttributes>();
    return {{exchange.label, rules.message, sent.dtype, sent.elements() / exchange.degree,
             mesh::Axis::kExchange}};
  }
  return {{operation.as<MessageAttributes>().label, rules.message, sent.dtype, sent.elements()}};
}

std::vector<ProgramMessage> messages_of(const LayerProgram& program, Section section) {
  std::vector<ProgramMessage> messages;
  for (const Operation& operation : program.section(section)) {
    for (const ProgramMessage& message : messages_of(program, operation)) {
      messages.push_back(message);
    }
  }
  return messages;
}

}  // namespace smp::program
