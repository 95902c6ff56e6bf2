#include "program/builder.h"

#include <algorithm>

#include "smp/plan/base/check.h"

namespace smp::program {

std::string gradient_name(const std::string& of) {
  return of.find('+') == std::string::npos ? "d " + of : "d(" + of + ")";
}

ProgramBuilder::ProgramBuilder(const ModelSpec& model, const model::LayerSpec& layer,
                               const model::LayerCall& call)
    : model_(model),
      layer_(layer),
      call_(call),
      specs_(model::parameters_of(model, layer, call.kinds)) {}

ValueId ProgramBuilder::add_value(Value value) {
  const auto id = static_cast<ValueId>(program_.values.size());
  if (value.memory == kNoValue) value.memory = id;
  program_.values.push_back(std::move(value));
  return id;
}

ValueId ProgramBuilder::input(std::string name, Shape shape, DType dtype) {
  program_.inputs.push_back(
      add_value({std::move(name), Role::kInput, dtype, std::move(shape), kNoValue, ""}));
  return program_.inputs.back();
}

ValueId ProgramBuilder::batch(std::string name, Shape shape, DType dtype) {
  program_.inputs.push_back(
      add_value({std::move(name), Role::kBatch, dtype, std::move(shape), kNoValue, ""}));
  return program_.inputs.back();
}

ValueId ProgramBuilder::output_gradient(ValueId of) {
  const Value& output = value(of);
  program_.output_gradients.push_back(add_value({gradient_name(output.name), Role::kOutputGradient,
                                                 output.dtype, output.shape, kNoValue, ""}));
  return program_.output_gradients.back();
}

ValueId ProgramBuilder::parameters(const std::string& first, const std::string& last) {
  const auto find = [&](const std::string& name) {
    const std::string whole = layer_.name + "." + name;
    return std::find_if(specs_.begin(), specs_.end(),
                        [&](const auto& spec) { return spec.name == whole; });
  };
  const auto begin = find(first), end = find(last);
  if (begin == specs_.end()) return kNoValue;
  SMP_CHECK(end != specs_.end() && end >= begin);
  const std::string last_name = first == last ? "" : last;
  for (const auto& [parameter, gradient] : gradients_) {
    const Value& known = value(parameter);
    if (known.name == first && known.last_parameter == last_name) return parameter;
  }
  Dim rows{0, "out"};
  for (auto spec = begin; spec <= end; ++spec) {
    rows.size += model::parameter_box(model_, *spec, call_).rows();
  }
  Shape shape{rows};
  if (!begin->is_vector) {
    shape.push_back({model::parameter_box(model_, *begin, call_).cols(), "in"});
  }
  const ValueId parameter =
      add_value({first, Role::kParameter, call_.dtype, shape, kNoValue, last_name});
  const ValueId gradient =
      add_value({"d " + first, Role::kGradient, wide_dtype(), shape, kNoValue, last_name});
  gradients_.emplace_back(parameter, gradient);
  return parameter;
}

ValueId ProgramBuilder::tied_parameter() {
  const Shape shape{{call_.part_of(model_.vocab_size, call_.kinds.embedding), "out"},
                    {model_.hidden_size, "in"}};
  const ValueId parameter =
      add_value({std::string(kTiedParameter), Role::kParameter, call_.dtype, shape, kNoValue, ""});
  const ValueId gradient = add_value(
      {"d " + std::string(kTiedParameter), Role::kGradient, wide_dtype(), shape, kNoValue, ""});
  gradients_.emplace_back(parameter, gradient);
  return parameter;
}

ValueId ProgramBuilder::gradient_of(ValueId parameter) {
  if (parameter == kNoValue) return kNoValue;
  const auto found = std::find_if(gradients_.begin(), gradients_.end(),
                                  [&](const auto& pair) { return pair.first == parameter; });
  SMP_CHECK(found != gradients_.end());
  return found->second;
}

ValueId ProgramBuilder::made(std::string name, Shape shape, DType dtype) {
  return add_value({std::move(name), Role::kResult, dtype, std::move(shape), kNoValue, ""});
}

ValueId ProgramBuilder::over(std::string name, ValueId memory) {
  const Value& before = value(memory);
  return add_value({std::move(name), Role::kResult, before.dtype, before.shape, before.memory, ""});
}

void ProgramBuilder::add(OperationKind kind, std::vector<ValueId> inputs,
                         std::vector<ValueId> outputs, Attributes attributes,
                         std::vector<ValueId> gradients) {
  std::erase(gradients, kNoValue);
  std::vector<Operation>& operations = program_.sections[static_cast<int>(section_)];
  operations.push_back(
      {kind, std::move(inputs), std::move(outputs), std::move(gradients), std::move(attributes)});
}

LayerProgram ProgramBuilder::take() {
  find_saved(program_);
  return std::move(program_);
}

}  // namespace smp::program
