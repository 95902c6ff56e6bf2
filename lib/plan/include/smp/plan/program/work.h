#pragma once

#include <cstdint>

#include "smp/plan/program/program.h"

namespace smp::program {

// What operations do, without messages.
struct OperationWork {
  double flops = 0;
  int64_t read_bytes = 0;     // operands, once each
  int64_t written_bytes = 0;  // results, and gradients that are added to

  int64_t moved_bytes() const { return read_bytes + written_bytes; }
  void add(const OperationWork& other);
};

OperationWork work_of(const LayerProgram& program, const Operation& operation);
OperationWork work_of(const LayerProgram& program, Section section);

}  // namespace smp::program
