#pragma once

#include <string>
#include <utility>
#include <vector>

#include "smp/plan/program/program.h"

namespace smp::program {

// Adds values to a program, and changes where they lie.
struct ProgramEditor {
  LayerProgram& program;

  ValueId made(std::string name, std::vector<Dim> shape, DType dtype) const {
    const auto id = static_cast<ValueId>(program.values.size());
    program.values.push_back({std::move(name), Role::kResult, dtype, std::move(shape), id, ""});
    return id;
  }
  ValueId made_like(std::string name, ValueId like) const {
    const DType dtype = program.value(like).dtype;
    return made(std::move(name), program.value(like).shape, dtype);
  }
  // As many elements of another type.
  ValueId made_of(std::string name, ValueId like, DType dtype) const {
    return made(std::move(name), program.value(like).shape, dtype);
  }
  // In the memory of `memory`.
  ValueId over(std::string name, ValueId memory) const {
    const ValueId id = made_like(std::move(name), memory);
    program.values[static_cast<size_t>(id)].memory = program.value(memory).memory;
    return id;
  }
  // So many bytes for each element.
  ValueId made_of_bytes(std::string name, int64_t elements, double bytes) const;
  // The value gets memory of its own, and those that were made in it later move with it.
  void move_to_own_memory(ValueId id) const;

  std::vector<Operation>& forward() const { return program.sections[0]; }
};

}  // namespace smp::program
