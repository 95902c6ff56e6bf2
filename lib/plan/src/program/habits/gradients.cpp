#include "program/habits/gradients.h"

#include <algorithm>
#include <iterator>

#include "program/layers/region.h"

namespace smp::program {
namespace {

// What is gathered for a weight's gradient, while that of the input is computed.
constexpr std::string_view kGatheredAgain = "tensor.again";

bool gathers(const Operation* operation) {
  return operation != nullptr && operation->kind == OperationKind::kAllGather;
}

}  // namespace

Gradients::Gradients(LayerProgram& program, const Habits& habits)
    : editor_{program},
      program_(program),
      habits_(habits),
      parts_(program.values.size()),
      columns_(program.values.size(), kNoValue),
      producer_(program.values.size(), nullptr),
      needed_(program.values.size(), false) {
  for (const ValueId id : program.inputs) {
    if (program.value(id).role == Role::kInput) needed_[at(id)] = true;
  }
  for (const Operation& operation : editor_.forward()) mark(operation);
}

void Gradients::mark(const Operation& operation) {
  bool is_needed = false;
  for (const ValueId id : operation.inputs) {
    if (id == kNoValue) continue;
    const bool is_trained = habits_.trains && value(id).role == Role::kParameter;
    is_needed = is_needed || needed_[at(id)] || is_trained;
  }
  for (const ValueId id : operation.outputs) {
    if (id == kNoValue) continue;
    producer_[at(id)] = &operation;
    needed_[at(id)] = is_needed;
  }
}

bool Gradients::was_gathered(ValueId id) const { return gathers(producer_[at(id)]); }

ValueId Gradients::emit(OperationKind kind, std::vector<ValueId> inputs, ValueId output,
                        Attributes attributes, std::vector<ValueId> gradients, int64_t scratch) {
  std::vector<ValueId> outputs;
  if (output != kNoValue) outputs.push_back(output);
  emit_all(kind, std::move(inputs), std::move(outputs), std::move(attributes), std::move(gradients),
           scratch);
  return output;
}

void Gradients::emit_all(OperationKind kind, std::vector<ValueId> inputs,
                         std::vector<ValueId> outputs, Attributes attributes,
                         std::vector<ValueId> gradients, int64_t scratch) {
  std::erase(gradients, kNoValue);
  operations_.push_back({kind, std::move(inputs), std::move(outputs), std::move(gradients),
                         std::move(attributes), scratch});
}

void Gradients::add(ValueId of, ValueId gradient, bool is_addend) {
  if (gradient != kNoValue && needed_[at(of)]) parts_[at(of)].push_back({gradient, is_addend});
}

ValueId Gradients::sum(ValueId of, const std::vector<Part>& parts, bool of_addends) {
  ValueId result = kNoValue;
  for (const Part& part : parts) {
    if (part.is_addend != of_addends) continue;
    result = result == kNoValue ? part.id : emit(OperationKind::kAdd, {part.id, result}, like(of));
  }
  return result;
}

ValueId Gradients::summed(ValueId of) {
  if (of == kNoValue) return kNoValue;
  const std::vector<Part> parts = std::exchange(parts_[at(of)], {});
  ValueId addends = sum(of, parts, true);
  const ValueId whole = sum(of, parts, false);
  if (addends != kNoValue && !was_gathered(of)) {
    addends = emit(OperationKind::kAllReduce, {addends}, editor_.over(value(addends).name, addends),
                   MessageAttributes{kBackwardLabel});
  }
  if (addends == kNoValue || whole == kNoValue) return addends == kNoValue ? whole : addends;
  return emit(OperationKind::kAdd, {whole, addends}, like(of));
}

void Gradients::add_weight(OperationKind kind, ValueId dy, ValueId kept, ValueId weight,
                           const Attributes& attributes, std::vector<ValueId> others) {
  const ValueId gradient = of_parameter(weight);
  if (gradient == kNoValue) return;
  others.insert(others.begin(), {dy, kept});
  if (habits_.fused_weight_gradients) {
    emit(kind, std::move(others), kNoValue, attributes, {gradient});
    return;
  }
  const ValueId made = emit(kind, std::move(others), like(weight), attributes);
  emit(OperationKind::kAccumulate, {made}, kNoValue, {}, {gradient});
}

void Gradients::add_bias(ValueId dy, ValueId bias) {
  const ValueId gradient = of_parameter(bias);
  if (gradient != kNoValue) emit(OperationKind::kBiasGradient, {dy}, kNoValue, {}, {gradient});
}

ValueId Gradients::kept_input(ValueId x, bool narrows) {
  const bool is_narrow = narrows && habits_.narrow_bytes > 0;
  const bool gathered = was_gathered(x);
  ValueId kept = gathered ? producer_[at(x)]->in(0) : x;
  if (is_narrow) kept = narrow(kept);
  if (!gathered) return kept;
  const ValueId again =
      is_narrow ? editor_.made_of_bytes(value(x).name, value(x).elements(), habits_.narrow_bytes)
                : editor_.made_like(value(x).name, x);
  return emit(OperationKind::kAllGather, {kept}, again, MessageAttributes{kGatheredAgain});
}

// The value in less than 16 bits: cast by the forward, once for all that read it.
ValueId Gradients::narrow(ValueId x) {
  for (const auto& [of, cast] : casts_) {
    if (of == x) return cast;
  }
  const ValueId cast =
      editor_.made_of_bytes(value(x).name + ", cast", value(x).elements(), habits_.narrow_bytes);
  casts_.emplace_back(x, cast);
  return cast;
}

void Gradients::add_casts() {
  if (casts_.empty()) return;
  std::vector<Operation> operations;
  operations.reserve(editor_.forward().size() + casts_.size());
  for (const Operation& operation : editor_.forward()) {
    const bool is_product = operation.kind == OperationKind::kProduct ||
                            operation.kind == OperationKind::kExpertProduct;
    if (is_product) {
      const ValueId x = operation.in(0);
      const ValueId kept = was_gathered(x) ? producer_[at(x)]->in(0) : x;
      for (auto& [of, cast] : casts_) {
        if (of != kept) continue;
        operations.push_back({OperationKind::kCast, {of}, {cast}, {}, {}, 0});
        of = kNoValue;  // done
      }
    }
    operations.push_back(operation);
  }
  editor_.forward() = std::move(operations);
}

void Gradients::finish() {
  std::move(operations_.begin(), operations_.end(),
            std::back_inserter(program_.sections[static_cast<int>(Section::kBackward)]));
  add_casts();
}

}  // namespace smp::program
