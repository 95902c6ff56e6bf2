#pragma once

#include <string_view>
#include <vector>

#include "smp/plan/mesh/mesh.h"
#include "smp/plan/program/program.h"

namespace smp::program {

// One message of a section; `count` as in wire_bytes().
struct ProgramMessage {
  std::string_view label;  // "tensor.forward"
  mesh::CollectiveOp op = mesh::CollectiveOp::kAllReduce;
  DType dtype = DType::kF32;
  int64_t count = 0;
  mesh::Axis axis = mesh::Axis::kTensor;
};

// In the order in which a rank sends them. Of most operations none, of a loss two.
std::vector<ProgramMessage> messages_of(const LayerProgram& program, const Operation& operation);
std::vector<ProgramMessage> messages_of(const LayerProgram& program, Section section);

}  // namespace smp::program
