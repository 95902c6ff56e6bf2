#include "smp/plan/program/program.h"

#include "smp/plan/base/check.h"

namespace smp::program {

int64_t Value::elements() const {
  int64_t count = 1;
  for (const Dim& dim : shape) count *= dim.size;
  return count;
}

std::string_view name_of(Section section) {
  switch (section) {
    case Section::kForward: return "forward";
    case Section::kBackward: return "backward";
    case Section::kDeferring: return "backward of inputs";
    case Section::kWeights: return "gradients of weights";
    case Section::kRematerialize: return "rematerialize";
  }
  check_failed(__FILE__, __LINE__, "unknown section");
}

void find_saved(LayerProgram& program) {
  std::vector<bool> is_there(program.values.size(), false);
  for (const ValueId id : program.inputs) is_there[static_cast<size_t>(id)] = true;
  for (const Operation& operation : program.section(Section::kForward)) {
    for (const ValueId id : operation.outputs) {
      if (id != kNoValue) is_there[static_cast<size_t>(id)] = true;
    }
  }
  std::vector<bool> is_read(program.values.size(), false), is_reread = is_read;
  for (const Section section :
       {Section::kBackward, Section::kDeferring, Section::kWeights, Section::kRematerialize}) {
    std::vector<bool> is_made(program.values.size(), false);  // by this section
    for (const Operation& operation : program.section(section)) {
      for (const ValueId id : operation.inputs) {
        if (id == kNoValue || is_made[static_cast<size_t>(id)]) continue;
        (section == Section::kRematerialize ? is_reread : is_read)[static_cast<size_t>(id)] = true;
      }
      for (const ValueId id : operation.outputs) {
        if (id != kNoValue) is_made[static_cast<size_t>(id)] = true;
      }
    }
  }
  std::vector<bool> is_again(program.values.size(), false);
  for (const Operation& operation : program.section(Section::kRematerialize)) {
    for (const ValueId id : operation.outputs) {
      if (id != kNoValue) is_again[static_cast<size_t>(id)] = true;
    }
  }
  program.saved.clear();
  program.dropped.clear();
  program.reread.clear();
  for (size_t i = 0; i < program.values.size(); ++i) {
    if (!is_there[i] || !(is_read[i] || is_reread[i])) continue;
    program.saved.push_back(static_cast<ValueId>(i));
    if (!is_read[i]) program.reread.push_back(static_cast<ValueId>(i));
    if (is_again[i]) program.dropped.push_back(static_cast<ValueId>(i));
  }
}

int64_t PlacedOperation::rows(ValueId value) const {
  const std::vector<Dim>& shape = program.value(value).shape;
  return shape.empty() ? 1 : shape.front().size;
}

int64_t PlacedOperation::cols(ValueId value) const { return elements(value) / rows(value); }

int64_t PlacedOperation::elements(ValueId value) const { return program.value(value).elements(); }

DType PlacedOperation::dtype(ValueId value) const { return program.value(value).dtype; }

}  // namespace smp::program
