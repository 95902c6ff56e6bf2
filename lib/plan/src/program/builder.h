#pragma once

#include <string>
#include <utility>
#include <vector>

#include "smp/plan/program/program.h"

namespace smp::program {

using Shape = std::vector<Dim>;

// "d x", and "d(x + y)" of a name of several words.
std::string gradient_name(const std::string& of);

// Makes the program of one call of one layer: values, and operations at the end of the section that
// is open.
class ProgramBuilder {
 public:
  ProgramBuilder(const ModelSpec& model, const model::LayerSpec& layer,
                 const model::LayerCall& call);

  const ModelSpec& model() const { return model_; }
  const model::LayerSpec& layer() const { return layer_; }
  const model::LayerCall& call() const { return call_; }

  void open(Section section) { section_ = section; }
  // Whether the section that is open puts off the gradients of weights.
  bool defers() const { return section_ == Section::kDeferring; }
  // Runs `body` in the section of what is put off, or here.
  template <typename Body>
  void weights(const Body& body) {
    const Section here = section_;
    if (defers()) section_ = Section::kWeights;
    body();
    section_ = here;
  }

  // The inputs in the order of the call, and the fields of the batch behind them.
  ValueId input(std::string name, Shape shape, DType dtype);
  ValueId batch(std::string name, Shape shape, DType dtype);
  // In the order of the outputs; `of` is an output, whose shape and type the gradient has.
  ValueId output_gradient(ValueId of);

  // A parameter of the layer by its name in it, or neighbours as one; kNoValue if there is none.
  ValueId parameter(const std::string& name) { return parameters(name, name); }
  ValueId parameters(const std::string& first, const std::string& last);
  // The token embedding of a tied head.
  ValueId tied_parameter();
  ValueId gradient_of(ValueId parameter);

  ValueId made(std::string name, Shape shape, DType dtype);
  ValueId made_like(std::string name, ValueId like) {
    return made(std::move(name), value(like).shape, value(like).dtype);
  }
  // A value in the memory of `memory`, with its shape and type.
  ValueId over(std::string name, ValueId memory);

  void add(OperationKind kind, std::vector<ValueId> inputs, std::vector<ValueId> outputs,
           Attributes attributes = {}, std::vector<ValueId> gradients = {});

  const Value& value(ValueId id) const { return program_.value(id); }
  DType dtype() const { return call_.dtype; }
  DType wide_dtype() const { return wide(call_.dtype); }
  bool is_narrow() const { return bytes_of(call_.dtype) == 2; }

  LayerProgram& program() { return program_; }
  // Completes the program: what is saved follows from what is read.
  LayerProgram take();

 private:
  ValueId add_value(Value value);

  const ModelSpec& model_;
  const model::LayerSpec& layer_;
  const model::LayerCall call_;
  std::vector<model::ParameterSpec> specs_;
  std::vector<std::pair<ValueId, ValueId>> gradients_;  // of parameters
  Section section_ = Section::kForward;
  LayerProgram program_;
};

}  // namespace smp::program
