#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "layers/frame.h"
#include "layers/parameter_views.h"
#include "layers/program_cache.h"
#include "smp/plan/base/check.h"
#include "smp/plan/model/parameter_counts.h"
#include "smp/plan/program/build.h"

namespace smp::layers {
namespace {

at::Tensor viewed(const at::Tensor& tensor, const std::vector<int64_t>& sizes) {
  return tensor.sizes() == at::IntArrayRef(sizes) ? tensor : tensor.view(sizes);
}

// A layer that executes its program.
class ProgramLayer final : public Layer {
 public:
  ProgramLayer(const model::LayerSpec& layer, ParameterViews parameters,
               const kernels::TensorParallel& group, const kernels::ContextParallel& context,
               const kernels::ExpertParallel& experts, std::shared_ptr<ProgramCache> programs)
      : layer_(layer), parameters_(std::move(parameters)), programs_(std::move(programs)) {
    rank_.index = layer.index;
    rank_.group = group;
    rank_.context = context;
    rank_.experts = experts;
    rank_.device = parameters_.device();
    if (model::has_experts(programs_->model(), layer)) make_router_sums();
  }

  std::vector<at::Tensor> forward(const std::vector<at::Tensor>& inputs,
                                  const kernels::CallContext& call, Saved* saved) override;
  std::vector<at::Tensor> backward(Saved saved, std::vector<at::Tensor> gradients,
                                   const kernels::CallContext& call,
                                   DeferredWeightGradients* deferred) override;
  RouterLoad take_router_load() override;
  std::vector<double>* step_choices() override { return &rank_.step_choices; }
  void drop_recomputable(Saved& saved) const override;
  void rematerialize(Saved& saved) const override;

 private:
  const PreparedProgram& program_for(const std::vector<at::Tensor>& inputs);
  model::LayerCall call_of(const std::vector<at::Tensor>& inputs) const;
  void bind_parameters(const program::LayerProgram& program);
  void make_router_sums();
  static void put_saved(Frame& frame, const Saved& saved);

  const model::LayerSpec layer_;
  const ParameterViews parameters_;
  const std::shared_ptr<ProgramCache> programs_;
  LayerOnRank rank_;
  std::vector<at::Tensor> slots_;  // of the last frame, all undefined
  std::vector<double> sums_;       // rank_.router_sums on CPUs, which is not a tensor of the model
};

// Tokens are [b, s], or [2, b, s] of an encoder_decoder; what is between layers is [b, s / parts,
// h], or of a list [b, ...].
model::LayerCall ProgramLayer::call_of(const std::vector<at::Tensor>& inputs) const {
  const kernels::TensorParallel& group = rank_.group;
  model::LayerCall call{.micro_batch = inputs.at(0).size(0),
                        .sequence_length = 1,
                        .tensor_degree = group.degree,
                        .tensor_rank = group.rank,
                        .dtype = parameters_.dtype(),
                        .sequence_parallel = group.splits_sequence,
                        .kinds = group.kinds,
                        .fusions = programs_->fusions(),
                        .context = rank_.context.place,
                        .expert_degree = rank_.experts.degree};
  const at::Tensor& first = inputs[0];
  if (layer_.kind == model::LayerKind::kEmbedding) {
    call.micro_batch = first.size(-2);
    call.sequence_length = first.size(-1);
  } else if (!model::is_list(programs_->model())) {
    call.sequence_length = first.size(1) * group.parts();
  }
  return call;
}

const PreparedProgram& ProgramLayer::program_for(const std::vector<at::Tensor>& inputs) {
  const PreparedProgram& prepared = programs_->get(layer_, call_of(inputs), inputs);
  // Programs of a layer for other sizes have the same parameters under the same values.
  if (rank_.parameters.empty()) bind_parameters(prepared.program);
  SMP_CHECK_EQ(rank_.parameters.size(), prepared.program.values.size());
  return prepared;
}

void ProgramLayer::bind_parameters(const program::LayerProgram& program) {
  rank_.parameters.resize(program.values.size());
  for (size_t i = 0; i < program.values.size(); ++i) {
    const program::Value& value = program.values[i];
    if (value.role != program::Role::kParameter) continue;
    const bool joins = !value.last_parameter.empty();
    const Parameter parameter =
        value.name == program::kTiedParameter
            ? parameters_.tied()
            : parameters_.joined(value.name, joins ? value.last_parameter : value.name);
    SMP_CHECK_EQ(parameter.weight.numel(), value.elements());
    rank_.parameters[i] = parameter.weight;
    rank_.parameters[i + 1] = parameter.gradient;  // which stands behind its parameter
  }
}

std::vector<at::Tensor> ProgramLayer::forward(const std::vector<at::Tensor>& inputs,
                                              const kernels::CallContext& call, Saved* saved) {
  const PreparedProgram& prepared = program_for(inputs);
  const program::LayerProgram& program = prepared.program;
  SMP_CHECK_EQ(inputs.size(), program.inputs.size());
  Frame frame(prepared, rank_, call, std::exchange(slots_, {}));
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
      outputs.push_back(viewed(frame.slot(id), prepared.output_sizes[i]));
    }
  }
  if (frame.correct >= 0) {
    outputs.push_back(ledger::full_tensor({}, frame.correct, outputs.at(0).options()));
  }
  if (saved != nullptr) {
    saved->program = &prepared;
    saved->tensors.clear();
    saved->tensors.reserve(program.saved.size());
    for (const program::ValueId id : program.saved) {
      const at::Tensor* input = input_of(id);
      saved->tensors.push_back(input != nullptr ? *input : std::move(frame.slot(id)));
    }
  }
  slots_ = frame.take_slots();
  return outputs;
}

void ProgramLayer::put_saved(Frame& frame, const Saved& saved) {
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
  Frame frame(prepared, rank_, call, std::exchange(slots_, {}));
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
  if (!defers) {
    slots_ = frame.take_slots();
    return of_inputs;
  }
  auto rest = std::make_shared<Frame>(prepared, rank_, call);
  for (const program::ValueId id : prepared.deferred) rest->slot(id) = frame.slot(id);
  deferred->defer([rest = std::move(rest)] { rest->run(program::Section::kWeights); });
  slots_ = frame.take_slots();
  return of_inputs;
}

void ProgramLayer::make_router_sums() {
  const int64_t count = programs_->model().num_experts + kExtraSums;
  const auto options = at::TensorOptions(at::kDouble).device(rank_.device);
  if (rank_.device.is_cpu()) {
    sums_.resize(static_cast<size_t>(count));
    rank_.router_sums = at::from_blob(sums_.data(), {count}, options);
  } else {
    rank_.router_sums = ledger::zero_tensor({count}, options);
  }
}

RouterLoad ProgramLayer::take_router_load() {
  if (!rank_.router_sums.defined()) return {};
  const at::Tensor sums = rank_.router_sums.to(at::kCPU);
  const auto* values = sums.const_data_ptr<double>();
  const double* const extra = values + sums.numel() - kExtraSums;
  RouterLoad load;
  if (std::all_of(values, extra, [](double tokens) { return tokens == 0; })) return load;
  for (; values < extra; ++values) load.tokens.push_back(std::llround(*values));
  load.dropped = std::llround(extra[kDroppedSum]);
  load.balance_loss = extra[kBalanceSum];
  load.z_loss = extra[kZSum];
  rank_.router_sums.zero_();
  return load;
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
  Frame frame(*saved.program, rank_, {});
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

std::shared_ptr<ProgramCache> make_program_cache(const ModelSpec& model, const Fusions& fusions) {
  return std::make_shared<ProgramCache>(model, fusions);
}

std::unique_ptr<Layer> make_layer(const model::LayerSpec& layer, LayerParameters parameters,
                                  const kernels::TensorParallel& group,
                                  std::shared_ptr<ProgramCache> programs,
                                  const kernels::ContextParallel& context,
                                  const kernels::ExpertParallel& experts) {
  SMP_CHECK((group.communicator == nullptr) == (group.degree == 1));
  SMP_CHECK((context.ring == nullptr) == (context.place.ring == 1));
  SMP_CHECK((context.exchange == nullptr) == (context.place.exchange == 1));
  SMP_CHECK((experts.group == nullptr) == (experts.degree == 1));
  ParameterViews views(programs->model(), layer, std::move(parameters));
  return std::make_unique<ProgramLayer>(layer, std::move(views), group, context, experts,
                                        std::move(programs));
}

}  // namespace smp::layers
