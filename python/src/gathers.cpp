#include "backend.h"
#include "calls.h"

// SmpBackend's calls that move tensors from each to all, from each to one and from one to each.
namespace smp::pytorch {
namespace {

void all_gather(const char* call, comm::Communicator& communicator, Steps& steps,
                const Elements& to, const at::Tensor& input) {
  const Elements from = moved(call, input, nullptr);
  keep(steps, from);
  keep(steps, to);
  steps.parts.push_back(
      communicator.all_gather(from.data(), to.data(), from.count, from.dtype, kLabel));
}

void check_list(const char* call, const std::vector<at::Tensor>& list, const at::Tensor& like,
                int size) {
  TORCH_CHECK(int(list.size()) == size, "smp: ", call, " takes a list of ", size,
              " tensors, one per rank; got ", list.size());
  check_alike(call, list, like);
}

}  // namespace

SmpBackend::TorchWorkPtr SmpBackend::broadcast(Tensors& tensors,
                                               const c10d::BroadcastOptions& options) {
  const at::Tensor& tensor = only("broadcast", tensors);
  return start(c10d::OpType::BROADCAST, "smp:broadcast", options.timeout, tensors, tensor,
               [&](comm::Communicator& communicator, Steps& steps) {
                 const int root = int(options.rootRank);
                 const Elements all =
                     moved("broadcast", tensor, getRank() == root ? nullptr : &steps.after);
                 keep(steps, all);
                 steps.parts.push_back(
                     communicator.broadcast(all.data(), all.count, all.dtype, root, kLabel));
               });
}

SmpBackend::TorchWorkPtr SmpBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                               const c10d::AllgatherOptions& options) {
  only("all_gather", inputs);
  return allgather_coalesced(outputs, inputs, options);
}

SmpBackend::TorchWorkPtr SmpBackend::allgather_coalesced(std::vector<Tensors>& outputs,
                                                         Tensors& inputs,
                                                         const c10d::AllgatherOptions& options) {
  constexpr const char* kCall = "all_gather";
  // The coalesced call has a list for each rank, of its tensors; the plain one has one list.
  const bool by_rank = inputs.size() > 1 || outputs.size() != 1;
  std::vector<Tensors> lists(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (const Tensors& list : outputs) {
      if (!by_rank) {
        lists[i] = list;
      } else {
        TORCH_CHECK(list.size() == inputs.size(), "smp: ", kCall, ": got a list of ", list.size(),
                    " outputs for ", inputs.size(), " inputs");
        lists[i].push_back(list[i]);
      }
    }
    check_place(kCall, inputs[i], inputs.front());
    check_list(kCall, lists[i], inputs[i], getSize());
  }
  Tensors all;
  for (const Tensors& list : lists) all.insert(all.end(), list.begin(), list.end());
  return start(c10d::OpType::ALLGATHER, "smp:all_gather", options.timeout, all, inputs[0],
               [&](comm::Communicator& communicator, Steps& steps) {
                 for (size_t i = 0; i < inputs.size(); ++i)
                   all_gather(kCall, communicator, steps, row(kCall, lists[i], false, &steps.after),
                              inputs[i]);
               });
}

SmpBackend::TorchWorkPtr SmpBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                     const c10d::AllgatherOptions& options) {
  constexpr const char* kCall = "all_gather_into_tensor";
  check_whole(kCall, "output", output, input, getSize());
  return start(c10d::OpType::_ALLGATHER_BASE, "smp:_all_gather_base", options.timeout, {output},
               input, [&](comm::Communicator& communicator, Steps& steps) {
                 all_gather(kCall, communicator, steps, moved(kCall, output, &steps.after), input);
               });
}

SmpBackend::TorchWorkPtr SmpBackend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  constexpr const char* kCall = "all_gather_into_tensor_coalesced";
  TORCH_CHECK(outputs.size() == inputs.size(), "smp: ", kCall, ": ", outputs.size(),
              " outputs for ", inputs.size(), " inputs");
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_whole(kCall, "output", outputs[i], inputs[i], getSize());
    check_place(kCall, inputs[i], inputs.front());
  }
  return start(c10d::OpType::COALESCED, "smp:all_gather_into_tensor_coalesced", options.timeout,
               outputs, first_of(inputs), [&](comm::Communicator& communicator, Steps& steps) {
                 for (size_t i = 0; i < inputs.size(); ++i)
                   all_gather(kCall, communicator, steps, moved(kCall, outputs[i], &steps.after),
                              inputs[i]);
               });
}

SmpBackend::TorchWorkPtr SmpBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                            const c10d::GatherOptions& options) {
  const at::Tensor& input = only("gather", inputs);
  const int root = int(options.rootRank);
  const bool mine = getRank() == root;
  TORCH_CHECK(outputs.size() == (mine ? 1u : 0u), "smp: gather: only the root rank gives outputs");
  if (mine) check_list("gather", outputs[0], input, getSize());
  return start(c10d::OpType::GATHER, "smp:gather", options.timeout, mine ? outputs[0] : Tensors(),
               input, [&](comm::Communicator& communicator, Steps& steps) {
                 const Elements from = moved("gather", input, nullptr);
                 keep(steps, from);
                 Elements to;
                 if (mine) keep(steps, to = row("gather", outputs[0], false, &steps.after));
                 steps.parts.push_back(communicator.gather(from.data(), mine ? to.data() : nullptr,
                                                           from.count, from.dtype, root, kLabel));
               });
}

SmpBackend::TorchWorkPtr SmpBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                             const c10d::ScatterOptions& options) {
  const at::Tensor& output = only("scatter", outputs);
  const int root = int(options.rootRank);
  const bool mine = getRank() == root;
  TORCH_CHECK(inputs.size() == (mine ? 1u : 0u), "smp: scatter: only the root rank gives inputs");
  if (mine) check_list("scatter", inputs[0], output, getSize());
  return start(c10d::OpType::SCATTER, "smp:scatter", options.timeout, outputs, output,
               [&](comm::Communicator& communicator, Steps& steps) {
                 const Elements to = moved("scatter", output, &steps.after);
                 keep(steps, to);
                 Elements from;
                 if (mine) keep(steps, from = row("scatter", inputs[0], true, nullptr));
                 steps.parts.push_back(communicator.scatter(mine ? from.data() : nullptr, to.data(),
                                                            to.count, to.dtype, root, kLabel));
               });
}

}  // namespace smp::pytorch
