#pragma once

#include <string_view>
#include <vector>

#include "smp/plan/mesh/mesh.h"
#include "smp/plan/program/program.h"

namespace smp::program {

// One message of a section; `count` as in wire_bytes(). Where tokens choose their ranks (rows of
// experts) it is that after an even choice, and `most` an even part of what the rank has room for.
struct ProgramMessage {
  std::string_view label;  // "tensor.forward"
  mesh::CollectiveOp op = mesh::CollectiveOp::kAllReduce;
  DType dtype = DType::kF32;
  int64_t count = 0;
  mesh::Axis axis = mesh::Axis::kTensor;
  int64_t most = 0;  // 0: `count` is certain
};

// Whether the operation has ended when the next one begins: a message may go on until its kWait.
bool waits(const Operation& operation);

// In the order in which a rank sends them. Of most operations none, of a loss two.
std::vector<ProgramMessage> messages_of(const LayerProgram& program, const Operation& operation);
std::vector<ProgramMessage> messages_of(const LayerProgram& program, Section section);

}  // namespace smp::program
