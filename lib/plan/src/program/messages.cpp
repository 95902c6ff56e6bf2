#include "smp/plan/program/messages.h"

namespace smp::program {

std::vector<ProgramMessage> messages_of(const LayerProgram& program, Section section) {
  std::vector<ProgramMessage> messages;
  for (const Operation& operation : program.section(section)) {
    const OperationRules& rules = rules_of(operation.kind);
    const Value& sent = program.value(operation.in(0));
    if (operation.kind == OperationKind::kSoftmaxLoss) {
      if (!operation.as<LossAttributes>().is_shared) continue;
      const int64_t rows = sent.shape.front().size;
      const DType dtype = wide(sent.dtype);
      messages.push_back({"tensor.loss", mesh::CollectiveOp::kAllReduce, dtype, rows});  // maxima
      // Sums of exponentials, and the targets' logits.
      messages.push_back({"tensor.loss", mesh::CollectiveOp::kAllReduce, dtype, 2 * rows});
    } else if (operation.kind == OperationKind::kGatherChannels) {
      // All parts are as large as the largest.
      const auto& [cut, place] = operation.as<ChannelAttributes>();
      messages.push_back({"tensor.forward", rules.message, sent.dtype,
                          sent.shape.front().size * cut.size({place.degree, 0})});
    } else if (rules.kernel == KernelClass::kMessage) {
      messages.push_back(
          {operation.as<MessageAttributes>().label, rules.message, sent.dtype, sent.elements()});
    }
  }
  return messages;
}

}  // namespace smp::program
