#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "layers/frame.h"
#include "layers/parameter_views.h"
#include "ledger/torch_dtype.h"
#include "smp/plan/base/check.h"
#include "smp/plan/program/build.h"

namespace smp::layers {
namespace {

std::vector<int64_t> sizes_of(const program::Value& value) {
  std::vector<int64_t> sizes;
  for (const program::Dim& dim : value.shape) sizes.push_back(dim.size);
  return sizes;
}

at::Tensor viewed(const at::Tensor& tensor, const std::vector<int64_t>& sizes) {
  return tensor.sizes() == at::IntArrayRef(sizes) ? tensor : tensor.view(sizes);
}

// A layer that executes its program. The program follows from the sizes of a call, and is kept for
// the calls that come after.
class ProgramLayer final : public Layer {
 public:
  ProgramLayer(const ModelSpec& model, const model::LayerSpec& layer, ParameterViews parameters,
               const kernels::TensorParallel& group)
      : model_(model), layer_(layer), parameters_(std::move(parameters)), group_(group) {}

  std::vector<at::Tensor> forward(const std::vector<at::Tensor>& inputs,
                                  const kernels::CallContext& call, Saved* saved) override;
  std::vector<at::Tensor> backward(Saved saved, std::vector<at::Tensor> gradients,
                                   const kernels::CallContext& call,
                                   DeferredWeightGradients* deferred) override;
  void drop_recomputable(Saved& saved) const override;
  void rematerialize(Saved& saved) const override;

 private:
  const PreparedProgram& prepared_for(const std::vector<at::Tensor>& inputs);
  std::unique_ptr<PreparedProgram> prepare(int64_t micro_batch, int64_t sequence_length) const;
  void put_saved(Frame& frame, const Saved& saved) const;

  const ModelSpec model_;
  const model::LayerSpec layer_;
  const ParameterViews parameters_;
  const kernels::TensorParallel group_;
  std::vector<std::unique_ptr<PreparedProgram>> prepared_;
};

// Tokens are [b, s], or [2, b, s] of an encoder_decoder; what is between layers is [b, s / parts,
// h], or of a list [b, ...].
const PreparedProgram& ProgramLayer::prepared_for(const std::vector<at::Tensor>& inputs) {
  const at::Tensor& first = inputs.at(0);
  int64_t micro_batch = first.size(0), sequence_length = 1;
  if (layer_.kind == model::LayerKind::kEmbedding) {
    micro_batch = first.size(-2);
    sequence_length = first.size(-1);
  } else if (!model::is_list(model_)) {
    sequence_length = first.size(1) * group_.parts();
  }
  for (const auto& known : prepared_) {
    if (known->micro_batch == micro_batch && known->sequence_length == sequence_length) {
      return *known;
    }
  }
  PreparedProgram& made = *prepared_.emplace_back(prepare(micro_batch, sequence_length));
  for (const at::Tensor& input : inputs) made.input_sizes.push_back(input.sizes().vec());
  return made;
}

std::unique_ptr<PreparedProgram> ProgramLayer::prepare(int64_t micro_batch,
                                                       int64_t sequence_length) const {
  const model::LayerCall call{.micro_batch = micro_batch,
                              .sequence_length = sequence_length,
                              .tensor_degree = group_.degree,
                              .tensor_rank = group_.rank,
                              .dtype = parameters_.dtype(),
                              .sequence_parallel = group_.splits_sequence,
                              .kinds = group_.kinds};
  auto made = std::make_unique<PreparedProgram>();
  made->program = program::build(model_, layer_, call);
  made->micro_batch = micro_batch;
  made->sequence_length = sequence_length;
  made->outputs = model::outputs_of(model_, layer_, call);
  const program::LayerProgram& program = made->program;
  made->fixed.resize(program.values.size());
  for (size_t i = 0; i < program.values.size(); ++i) {
    const program::Value& value = program.values[i];
    made->sizes.push_back(sizes_of(value));
    made->types.push_back(ledger::scalar_type_of(value.dtype));
    if (value.role != program::Role::kParameter) continue;
    const Parameter parameter =
        value.name == program::kTiedParameter
            ? parameters_.tied()
            : parameters_.joined(value.name,
                                 value.last_parameter.empty() ? value.name : value.last_parameter);
    SMP_CHECK(parameter.weight.sizes() == at::IntArrayRef(made->sizes[i]));
    made->fixed[i] = parameter.weight;
    made->fixed[i + 1] = parameter.gradient;  // which stands behind its parameter
  }
  for (const program::Section section :
       {program::Section::kForward, program::Section::kBackward, program::Section::kDeferring,
        program::Section::kWeights, program::Section::kRematerialize}) {
    made->freed[static_cast<int>(section)] = program::life_of(program, section).freed;
  }
  made->freed_in_evaluation = program::life_of(program, program::Section::kForward, false).freed;
  made->deferred = program::deferred_values(program);
  return made;
}

std::vector<at::Tensor> ProgramLayer::forward(const std::vector<at::Tensor>& inputs,
                                              const kernels::CallContext& call, Saved* saved) {
  const PreparedProgram& prepared = prepared_for(inputs);
  const program::LayerProgram& program = prepared.program;
  SMP_CHECK_EQ(inputs.size(), program.inputs.size());
  Frame frame(prepared, group_, call, parameters_.device());
  const auto input_of = [&](program::ValueId id) -> const at::Tensor* {
    const auto found = std::find(program.inputs.begin(), program.inputs.end(), id);
    return found == program.inputs.end() ? nullptr : &inputs[found - program.inputs.begin()];
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    const program::ValueId id = program.inputs[i];
    frame.slot(id) = viewed(inputs[i], prepared.sizes[static_cast<size_t>(id)]);
  }
  frame.run(program::Section::kForward, saved != nullptr);

  std::vector<at::Tensor> outputs;
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    const program::ValueId id = program.outputs[i];
    if (const at::Tensor* input = input_of(id)) {
      outputs.push_back(*input);  // the same tensor, which other layers know
    } else {
      outputs.push_back(prepared.outputs.empty()
                            ? frame.slot(id)
                            : viewed(frame.slot(id), prepared.outputs[i].shape));
    }
  }
  if (frame.correct >= 0) {
    outputs.push_back(ledger::full_tensor({}, frame.correct, outputs.at(0).options()));
  }
  if (saved != nullptr) {
    saved->program = &prepared;
    saved->tensors.clear();
    for (const program::ValueId id : program.saved) {
      const at::Tensor* input = input_of(id);
      saved->tensors.push_back(input != nullptr ? *input : std::move(frame.slot(id)));
    }
  }
  return outputs;
}

void ProgramLayer::put_saved(Frame& frame, const Saved& saved) const {
  const PreparedProgram& prepared = frame.prepared();
  SMP_CHECK_EQ(saved.tensors.size(), prepared.program.saved.size());
  for (size_t i = 0; i < saved.tensors.size(); ++i) {
    const program::ValueId id = prepared.program.saved[i];
    if (!saved.tensors[i].defined()) continue;
    frame.slot(id) = viewed(saved.tensors[i], prepared.sizes[static_cast<size_t>(id)]);
  }
}

std::vector<at::Tensor> ProgramLayer::backward(Saved saved, std::vector<at::Tensor> gradients,
                                               const kernels::CallContext& call,
                                               DeferredWeightGradients* deferred) {
  const PreparedProgram& prepared = *saved.program;
  const program::LayerProgram& program = prepared.program;
  const bool defers = deferred != nullptr && !prepared.deferred.empty();
  const program::Section section =
      defers ? program::Section::kDeferring : program::Section::kBackward;
  Frame frame(prepared, group_, call, parameters_.device());
  put_saved(frame, saved);
  saved.tensors.clear();
  SMP_CHECK(gradients.size() >= program.output_gradients.size());
  for (size_t i = 0; i < program.output_gradients.size(); ++i) {
    const program::ValueId id = program.output_gradients[i];
    frame.slot(id) = viewed(gradients[i].contiguous(), prepared.sizes[static_cast<size_t>(id)]);
  }
  gradients.clear();
  frame.run(section);

  const std::vector<program::ValueId>& made = program.gradients_of(section);
  std::vector<at::Tensor> of_inputs(made.size());
  for (size_t i = 0; i < made.size(); ++i) {
    if (made[i] == program::kNoValue) continue;
    of_inputs[i] = viewed(frame.slot(made[i]), prepared.input_sizes[i]);
  }
  if (!defers) return of_inputs;
  auto rest = std::make_shared<Frame>(prepared, group_, call, parameters_.device());
  for (const program::ValueId id : prepared.deferred) rest->slot(id) = frame.slot(id);
  deferred->defer([rest = std::move(rest)] { rest->run(program::Section::kWeights); });
  return of_inputs;
}

void ProgramLayer::drop_recomputable(Saved& saved) const {
  const program::LayerProgram& program = saved.program->program;
  for (size_t i = 0; i < program.saved.size(); ++i) {
    const bool drops = std::find(program.dropped.begin(), program.dropped.end(),
                                 program.saved[i]) != program.dropped.end();
    if (drops) saved.tensors[i].reset();
  }
}

void ProgramLayer::rematerialize(Saved& saved) const {
  const program::LayerProgram& program = saved.program->program;
  if (program.dropped.empty()) return;
  Frame frame(*saved.program, group_, {}, parameters_.device());
  put_saved(frame, saved);
  frame.run(program::Section::kRematerialize);
  for (size_t i = 0; i < program.saved.size(); ++i) {
    if (!saved.tensors[i].defined()) saved.tensors[i] = std::move(frame.slot(program.saved[i]));
  }
}

}  // namespace

void DeferredWeightGradients::run() {
  for (std::function<void()>& piece : pieces_) {
    piece();
    piece = nullptr;
  }
  pieces_.clear();
}

std::unique_ptr<Layer> make_layer(const ModelSpec& model, const model::LayerSpec& layer,
                                  LayerParameters parameters, kernels::TensorParallel group) {
  SMP_CHECK((group.communicator == nullptr) == (group.degree == 1));
  return std::make_unique<ProgramLayer>(model, layer,
                                        ParameterViews(model, layer, std::move(parameters)), group);
}

}  // namespace smp::layers
