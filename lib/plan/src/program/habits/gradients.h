#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "program/builder.h"
#include "program/habits/editor.h"
#include "smp/plan/program/habits.h"

namespace smp::program {

// The gradients of a forward's values while its backward is derived, and the operations that make
// them. Each gradient is a value of its own.
class Gradients {
 public:
  Gradients(LayerProgram& program, const Habits& habits);

  const Value& value(ValueId id) const { return program_.value(id); }
  const Habits& habits() const { return habits_; }
  const ProgramEditor& editor() const { return editor_; }

  // Whether the value's gradient is needed: by an input or a trained weight.
  bool needs(ValueId id) const { return id != kNoValue && needed_[at(id)]; }
  // The operation of the forward that makes the value is such a gather.
  bool was_gathered(ValueId id) const;

  // Adds an operation to the backward, and returns its output. `scratch` in bytes.
  ValueId emit(OperationKind kind, std::vector<ValueId> inputs, ValueId output,
               Attributes attributes = {}, std::vector<ValueId> gradients = {},
               int64_t scratch = 0);
  void emit_all(OperationKind kind, std::vector<ValueId> inputs, std::vector<ValueId> outputs,
                Attributes attributes = {}, std::vector<ValueId> gradients = {},
                int64_t scratch = 0);
  // A value of that shape and type, to be its gradient.
  ValueId like(ValueId of) const { return editor_.made_like(gradient_name(value(of).name), of); }

  // One more gradient of a value, or with `is_addend` this rank's addend of one.
  void add(ValueId of, ValueId gradient, bool is_addend = false);
  // The sum of a value's gradients, which are taken; kNoValue if there is none. Addends are summed
  // over the tensor ranks, unless the value was gathered from them: then that is the gather's own
  // backward.
  ValueId summed(ValueId of);

  // The gradient of some columns of a value, which what makes the rest reads.
  ValueId& columns(ValueId of) { return columns_[at(of)]; }

  // Of a parameter; kNoValue if it is frozen, or there is none.
  ValueId of_parameter(ValueId parameter) const {
    return parameter == kNoValue || !habits_.trains ? kNoValue : parameter + 1;
  }
  void add_weight(OperationKind kind, ValueId dy, ValueId kept, ValueId weight,
                  const Attributes& attributes, std::vector<ValueId> others = {});
  void add_bias(ValueId dy, ValueId bias);

  // What a product keeps of its input, for the gradient of its weight; `narrows`: in less than 16
  // bits, if the framework does so. What was gathered is gathered again.
  ValueId kept_input(ValueId x, bool narrows);

  // Puts the backward in its section, and the casts of what is kept narrow ahead of the first
  // product that reads it.
  void finish();

 private:
  struct Part {
    ValueId id;
    bool is_addend;
  };

  static size_t at(ValueId id) { return static_cast<size_t>(id); }
  void mark(const Operation& operation);
  ValueId sum(ValueId of, const std::vector<Part>& parts, bool of_addends);
  ValueId narrow(ValueId x);
  void add_casts();

  const ProgramEditor editor_;
  LayerProgram& program_;
  const Habits& habits_;
  std::vector<std::vector<Part>> parts_;  // of the forward's values
  std::vector<ValueId> columns_;          // of the same
  std::vector<const Operation*> producer_;
  std::vector<bool> needed_;
  std::vector<std::pair<ValueId, ValueId>> casts_;  // of values
  std::vector<Operation> operations_;
};

}  // namespace smp::program
