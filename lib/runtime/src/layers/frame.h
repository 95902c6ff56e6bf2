#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "kernels/dropout.h"
#include "layers/prepared_program.h"
#include "ledger/tensor_factories.h"
#include "smp/comm/communicator.h"
#include "smp/runtime/kernels/call_context.h"
#include "smp/runtime/kernels/context_parallel.h"
#include "smp/runtime/kernels/expert_parallel.h"
#include "smp/runtime/kernels/tensor_parallel.h"
#include "smp/runtime/layers/layer.h"

// The tensors of one call of a program, and the operation that runs, as its kernel sees them.
namespace smp::layers {

// What the calls of a layer have in common.
struct LayerOnRank {
  int64_t index = 0;  // in the model
  kernels::TensorParallel group;
  kernels::ContextParallel context;
  kernels::ExpertParallel experts;
  at::Device device = at::kCPU;
  std::vector<at::Tensor> parameters;  // and their gradients, by value; else undefined
  // Of a router, in the backwards since they were last taken: fp64, the tokens that chose each
  // expert, and behind them the sums below. Undefined without a router.
  at::Tensor router_sums;
  // By expert, where the balancing loss counts the global batch: the tokens that chose it in the
  // forwards since the step began; in the backwards the mean of a microbatch.
  mutable std::vector<double> step_choices;
};

// The places behind the experts' in LayerOnRank::router_sums: choices that a full expert did not
// take, and the losses, each with its factor, summed over the tokens.
inline constexpr int64_t kDroppedSum = 0, kBalanceSum = 1, kZSum = 2, kExtraSums = 3;

class Frame {
 public:
  // `slots`: memory of an earlier frame's, or empty. Of this size each new one would make malloc
  // collect what is free.
  Frame(const PreparedProgram& prepared, const LayerOnRank& layer, const kernels::CallContext& call,
        std::vector<at::Tensor> slots = {})
      : prepared_(prepared), layer_(layer), call_(call), slots_(std::move(slots)) {
    slots_.resize(prepared.program.values.size());
  }

  // Runs a section. A forward that does not save lets everything but its outputs go.
  void run(program::Section section, bool saves = true);

  // Lets go of all tensors.
  std::vector<at::Tensor> take_slots() {
    for (at::Tensor& tensor : slots_) tensor.reset();
    return std::move(slots_);
  }

  at::Tensor& slot(program::ValueId id) { return slots_[static_cast<size_t>(id)]; }
  const PreparedProgram& prepared() const { return prepared_; }
  const kernels::CallContext& call() const { return call_; }
  const kernels::TensorParallel& group() const { return layer_.group; }
  const kernels::ContextParallel& context() const { return layer_.context; }
  const kernels::ExpertParallel& experts() const { return layer_.experts; }
  bool saves() const { return saves_; }
  const at::Tensor& router_sums() const { return layer_.router_sums; }
  std::vector<double>& step_choices() const { return layer_.step_choices; }

  // Operands of the running operation; undefined where the layer does not have them.
  const at::Tensor& in(size_t i) const { return at(operation_->in(i)); }
  bool has_in(size_t i) const { return operation_->in(i) != program::kNoValue; }
  bool has_out(size_t i) const { return operation_->out(i) != program::kNoValue; }
  const at::Tensor& gradient(size_t i) const { return at(operation_->gradients.at(i)); }
  size_t gradients() const { return operation_->gradients.size(); }
  template <typename T>
  const T& as() const {
    return operation_->as<T>();
  }

  // An output: a new tensor, a tensor that the kernel has made, or one in the memory of an operand.
  const at::Tensor& make(size_t i) {
    const program::ValueId id = operation_->out(i);
    return set(i, ledger::empty_tensor(sizes(id), options(id)));
  }
  const at::Tensor& make_zero(size_t i) {
    const program::ValueId id = operation_->out(i);
    return set(i, ledger::zero_tensor(sizes(id), options(id)));
  }
  const at::Tensor& set(size_t i, at::Tensor tensor) {
    return slot(operation_->out(i)) = std::move(tensor);
  }
  const at::Tensor& set_over(size_t i, const at::Tensor& operand) {
    const program::ValueId id = operation_->out(i);
    return set(i,
               operand.sizes() == at::IntArrayRef(sizes(id)) ? operand : operand.view(sizes(id)));
  }
  // In the memory of input `operand` if the program says so, else new.
  const at::Tensor& make_or_over(size_t i, size_t operand) {
    const program::ValueId id = operation_->out(i);
    if (prepared_.program.value(id).memory == id) return make(i);
    return set_over(i, in(operand));
  }

  // A constant times a number of the call, which may be absent.
  double factor(double constant, size_t operand) const {
    return has_in(operand) ? constant * in(operand).item().toDouble() : constant;
  }
  kernels::Dropout dropout(const program::DropoutAttributes& attributes) const {
    program::DropoutAttributes keyed = attributes;
    if (keyed.layer == program::kOwnLayer) keyed.layer = layer_.index;
    return kernels::dropout_of(keyed, call_);
  }

  // A message under way, by the value that it gives.
  void start(program::ValueId id, comm::WorkPtr work) { works_.emplace_back(id, std::move(work)); }
  void wait(program::ValueId id);
  const program::Operation& operation() const { return *operation_; }

  // The number of samples of an evaluation whose target has the largest logit; below 0: not
  // counted.
  double correct = -1;

 private:
  const at::Tensor& at(program::ValueId id) const {
    if (id == program::kNoValue) return none_;
    const at::Tensor& parameter = layer_.parameters[static_cast<size_t>(id)];
    return parameter.defined() ? parameter : slots_[static_cast<size_t>(id)];
  }
  at::IntArrayRef sizes(program::ValueId id) const {
    return prepared_.sizes[static_cast<size_t>(id)];
  }
  at::TensorOptions options(program::ValueId id) const {
    return at::TensorOptions(prepared_.types[static_cast<size_t>(id)]).device(layer_.device);
  }

  const PreparedProgram& prepared_;
  const LayerOnRank& layer_;
  const kernels::CallContext call_;
  const at::Tensor none_;
  std::vector<at::Tensor> slots_;
  // Behind the tensors, which must outlive their messages.
  std::vector<std::pair<program::ValueId, comm::WorkPtr>> works_;
  const program::Operation* operation_ = nullptr;
  bool saves_ = true;
};

// The kernel of a kind of operation. It reads the frame's operands and makes its outputs; loops on
// CPUs and kernels on GPUs are behind functions_of().
using OperationKernel = void (*)(Frame& frame);
OperationKernel kernel_of(program::OperationKind kind);

}  // namespace smp::layers
