#include "program/habits/editor.h"

#include <cmath>

namespace smp::program {

ValueId ProgramEditor::made_of_bytes(std::string name, int64_t elements, double bytes) const {
  const auto whole = static_cast<int64_t>(std::ceil(static_cast<double>(elements) * bytes));
  return made(std::move(name), {{whole, "bytes"}}, DType::kU8);
}

void ProgramEditor::move_to_own_memory(ValueId id) const {
  const ValueId before = program.value(id).memory;
  if (before == id) return;
  for (size_t i = static_cast<size_t>(id); i < program.values.size(); ++i) {
    if (program.values[i].memory == before) program.values[i].memory = id;
  }
}

}  // namespace smp::program
