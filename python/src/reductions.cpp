#include "backend.h"
#include "calls.h"

// SmpBackend's calls that reduce.
namespace smp::pytorch {
namespace {

void all_reduce(const char* call, comm::Communicator& communicator, Steps& steps,
                const at::Tensor& tensor, const c10d::ReduceOp& op) {
  const comm::ReduceOp how = reduction_of(call, op, tensor.scalar_type());
  const Elements all = reduced(call, tensor, &steps.after);
  keep(steps, all);
  steps.parts.push_back(
      communicator.all_reduce(all.data(), all.data(), all.count, all.dtype, how, kLabel));
}

void reduce_scatter(const char* call, comm::Communicator& communicator, Steps& steps,
                    const at::Tensor& output, const at::Tensor& input, const c10d::ReduceOp& op) {
  const comm::ReduceOp how = reduction_of(call, op, input.scalar_type());
  const Elements from = reduced(call, input, nullptr);
  const Elements to = reduced(call, output, &steps.after);
  keep(steps, from);
  keep(steps, to);
  steps.parts.push_back(
      communicator.reduce_scatter(from.data(), to.data(), from.count, from.dtype, how, kLabel));
}

}  // namespace

SmpBackend::TorchWorkPtr SmpBackend::allreduce(Tensors& tensors,
                                               const c10d::AllreduceOptions& options) {
  const at::Tensor& tensor = only("all_reduce", tensors);
  return start(c10d::OpType::ALLREDUCE, "smp:all_reduce", options.timeout, tensors, tensor,
               [&](comm::Communicator& communicator, Steps& steps) {
                 all_reduce("all_reduce", communicator, steps, tensor, options.reduceOp);
               });
}

SmpBackend::TorchWorkPtr SmpBackend::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  constexpr const char* kCall = "all_reduce_coalesced";
  for (const at::Tensor& tensor : tensors) {
    check_alike(kCall, {tensor}, tensor);
    check_place(kCall, tensor, tensors.front());
    reduction_of(kCall, options.reduceOp, tensor.scalar_type());
  }
  return start(c10d::OpType::ALLREDUCE_COALESCED, "smp:all_reduce", options.timeout, tensors,
               first_of(tensors), [&](comm::Communicator& communicator, Steps& steps) {
                 for (const at::Tensor& tensor : tensors)
                   all_reduce(kCall, communicator, steps, tensor, options.reduceOp);
               });
}

SmpBackend::TorchWorkPtr SmpBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const at::Tensor& tensor = only("reduce", tensors);
  return start(
      c10d::OpType::REDUCE, "smp:reduce", options.timeout, tensors, tensor,
      [&](comm::Communicator& communicator, Steps& steps) {
        const comm::ReduceOp how = reduction_of("reduce", options.reduceOp, tensor.scalar_type());
        const int root = int(options.rootRank);
        const bool mine = getRank() == root;
        const Elements all = reduced("reduce", tensor, mine ? &steps.after : nullptr);
        keep(steps, all);
        steps.parts.push_back(communicator.reduce(all.data(), mine ? all.data() : nullptr,
                                                  all.count, all.dtype, how, root, kLabel));
      });
}

SmpBackend::TorchWorkPtr SmpBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                    const c10d::ReduceScatterOptions& options) {
  constexpr const char* kCall = "reduce_scatter";
  const at::Tensor& output = only(kCall, outputs);
  TORCH_CHECK(inputs.size() == 1 && int(inputs[0].size()) == getSize(), "smp: ", kCall,
              " takes a list of ", getSize(), " tensors, one per rank");
  check_alike(kCall, inputs[0], output);
  return start(c10d::OpType::REDUCE_SCATTER, "smp:reduce_scatter", options.timeout, outputs, output,
               [&](comm::Communicator& communicator, Steps& steps) {
                 const Elements all = row(kCall, inputs[0], true, nullptr);
                 pytorch::reduce_scatter(kCall, communicator, steps, output, all.flat,
                                         options.reduceOp);
               });
}

SmpBackend::TorchWorkPtr SmpBackend::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  constexpr const char* kCall = "reduce_scatter_tensor";
  check_whole(kCall, "input", input, output, getSize());
  return start(c10d::OpType::_REDUCE_SCATTER_BASE, "smp:_reduce_scatter_base", options.timeout,
               {output}, output, [&](comm::Communicator& communicator, Steps& steps) {
                 pytorch::reduce_scatter(kCall, communicator, steps, output, input,
                                         options.reduceOp);
               });
}

SmpBackend::TorchWorkPtr SmpBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  constexpr const char* kCall = "reduce_scatter_tensor_coalesced";
  TORCH_CHECK(outputs.size() == inputs.size(), "smp: ", kCall, ": ", outputs.size(),
              " outputs for ", inputs.size(), " inputs");
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_whole(kCall, "input", inputs[i], outputs[i], getSize());
    check_place(kCall, outputs[i], outputs.front());
    reduction_of(kCall, options.reduceOp, inputs[i].scalar_type());
  }
  return start(c10d::OpType::COALESCED, "smp:reduce_scatter_tensor_coalesced", options.timeout,
               outputs, first_of(outputs), [&](comm::Communicator& communicator, Steps& steps) {
                 for (size_t i = 0; i < inputs.size(); ++i)
                   pytorch::reduce_scatter(kCall, communicator, steps, outputs[i], inputs[i],
                                           options.reduceOp);
               });
}

}  // namespace smp::pytorch
