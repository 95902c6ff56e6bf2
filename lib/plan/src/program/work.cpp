#include "smp/plan/program/work.h"

#include <algorithm>
#include <limits>

namespace smp::program {

void OperationWork::add(const OperationWork& other) {
  flops += other.flops;
  read_bytes += other.read_bytes;
  written_bytes += other.written_bytes;
}

OperationWork work_of(const LayerProgram& program, const Operation& operation) {
  const OperationRules& rules = rules_of(operation.kind);
  OperationWork work;
  if (rules.kernel == KernelClass::kView) return work;
  const auto bytes = [&](ValueId id) { return id == kNoValue ? 0 : program.value(id).bytes(); };
  int64_t rows = std::numeric_limits<int64_t>::max();  // most bytes of rows of a table
  if (rules.moves_rows) {
    rows = bytes(operation.outputs.empty() ? operation.inputs.back() : operation.outputs.front());
  }
  for (const ValueId id : operation.inputs) work.read_bytes += std::min(bytes(id), rows);
  for (const ValueId id : operation.outputs) work.written_bytes += bytes(id);
  for (const ValueId id : operation.gradients) {
    work.read_bytes += std::min(bytes(id), rows);
    work.written_bytes += std::min(bytes(id), rows);
  }
  if (rules.flops != nullptr) work.flops = rules.flops({program, operation});
  return work;
}

OperationWork work_of(const LayerProgram& program, Section section) {
  OperationWork work;
  for (const Operation& operation : program.section(section)) work.add(work_of(program, operation));
  return work;
}

}  // namespace smp::program
