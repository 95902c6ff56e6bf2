#include <fmt/format.h>

#include "backend.h"
#include "calls.h"

// SmpBackend's calls between pairs of ranks. torch lets each pair have parts of its own size in an
// all-to-all, and no rank knows whether they are equal elsewhere, so it is made of messages.
namespace smp::pytorch {
namespace {

constexpr const char* kAllToAll = "pytorch all_to_all";

// Messages of a pair come in the order of their calls; a tag that does not fit there is a mismatch.
std::string label_of(int tag) {
  return tag == 0 ? std::string(kLabel) : fmt::format("{} tag {}", kLabel, tag);
}

// Rows of dimension 0 for each rank, as asked for or equal; counts of elements.
std::vector<int64_t> counts_of(const char* what, const at::Tensor& tensor,
                               const std::vector<int64_t>& rows, int size) {
  const int64_t all = tensor.dim() == 0 ? 1 : tensor.size(0);
  if (rows.empty()) {
    TORCH_CHECK(all % size == 0, "smp: all_to_all: the ", what, " has ", all,
                " rows, which is not a multiple of the number of ranks, ", size);
    return std::vector<int64_t>(size_t(size), tensor.numel() / size);
  }
  TORCH_CHECK(int(rows.size()) == size, "smp: all_to_all: ", rows.size(), " ", what, " splits for ",
              size, " ranks");
  int64_t sum = 0;
  for (const int64_t count : rows) sum += count;
  TORCH_CHECK(sum == all, "smp: all_to_all: the ", what, " splits sum to ", sum, ", not to ", all,
              " rows");
  std::vector<int64_t> counts;
  for (const int64_t count : rows) counts.push_back(all == 0 ? 0 : tensor.numel() / all * count);
  return counts;
}

// Exchanges tensor i of `to` and of `from` with rank i.
void exchange(comm::Communicator& communicator, Steps& steps, const std::vector<Elements>& to,
              const std::vector<Elements>& from) {
  const int size = communicator.size(), self = communicator.rank();
  for (int step = 0; step < size; ++step) {
    const size_t source = size_t((self + size - step) % size), peer = size_t((self + step) % size);
    keep(steps, from[peer]);
    keep(steps, to[source]);
    if (step == 0) {
      TORCH_CHECK(to[peer].count == from[peer].count && to[peer].dtype == from[peer].dtype,
                  "smp: all_to_all: this rank's own part has ", from[peer].count,
                  " elements, but the output has room for ", to[peer].count);
      to[peer].flat.view({-1}).copy_(from[peer].flat.view({-1}));
      continue;
    }
    steps.parts.push_back(communicator.recv(to[source].data(), to[source].count, to[source].dtype,
                                            int(source), kAllToAll));
    steps.parts.push_back(communicator.send(from[peer].data(), from[peer].count, from[peer].dtype,
                                            int(peer), kAllToAll));
  }
}

std::vector<Elements> cut(const char* call, const at::Tensor& flat,
                          const std::vector<int64_t>& counts) {
  const at::Tensor line = flat.view({-1});
  std::vector<Elements> parts;
  int64_t begin = 0;
  for (const int64_t count : counts) {
    parts.push_back(moved(call, line.narrow(0, begin, count), nullptr));
    begin += count;
  }
  return parts;
}

}  // namespace

SmpBackend::TorchWorkPtr SmpBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                              const c10d::AllToAllOptions& options) {
  TORCH_CHECK(int(outputs.size()) == getSize() && int(inputs.size()) == getSize(),
              "smp: all_to_all takes lists of ", getSize(), " tensors, one per rank");
  for (size_t i = 0; i < outputs.size(); ++i) {
    check_alike("all_to_all", {outputs[i]}, outputs[i]);
    check_alike("all_to_all", {inputs[i]}, inputs[i]);
    check_place("all_to_all", outputs[i], outputs[0]);
    check_place("all_to_all", inputs[i], outputs[0]);
  }
  return start(c10d::OpType::ALLTOALL, "smp:all_to_all", options.timeout, outputs, outputs[0],
               [&](comm::Communicator& communicator, Steps& steps) {
                 std::vector<Elements> to, from;
                 for (const at::Tensor& tensor : outputs)
                   to.push_back(moved("all_to_all", tensor, &steps.after));
                 for (const at::Tensor& tensor : inputs)
                   from.push_back(moved("all_to_all", tensor, nullptr));
                 exchange(communicator, steps, to, from);
               });
}

SmpBackend::TorchWorkPtr SmpBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                   std::vector<int64_t>& output_sizes,
                                                   std::vector<int64_t>& input_sizes,
                                                   const c10d::AllToAllOptions& options) {
  constexpr const char* kCall = "all_to_all_single";
  check_alike(kCall, {output}, output);
  check_alike(kCall, {input}, input);
  TORCH_CHECK(output.scalar_type() == input.scalar_type(), "smp: ", kCall, ": the output is ",
              output.scalar_type(), ", but the input is ", input.scalar_type());
  check_place(kCall, output, input);
  const std::vector<int64_t> to_counts = counts_of("output", output, output_sizes, getSize());
  const std::vector<int64_t> from_counts = counts_of("input", input, input_sizes, getSize());
  return start(c10d::OpType::ALLTOALL_BASE, "smp:all_to_all", options.timeout, {output}, output,
               [&](comm::Communicator& communicator, Steps& steps) {
                 const Elements to = moved(kCall, output, &steps.after);
                 const Elements from = moved(kCall, input, nullptr);
                 exchange(communicator, steps, cut(kCall, to.flat, to_counts),
                          cut(kCall, from.flat, from_counts));
               });
}

SmpBackend::TorchWorkPtr SmpBackend::send(Tensors& tensors, int peer, int tag) {
  const at::Tensor& tensor = only("send", tensors);
  return start(c10d::OpType::SEND, "smp:send", c10d::kUnsetTimeout, {}, tensor,
               [&](comm::Communicator& communicator, Steps& steps) {
                 const Elements from = moved("send", tensor, nullptr);
                 keep(steps, from);
                 steps.parts.push_back(
                     communicator.send(from.data(), from.count, from.dtype, peer, label_of(tag)));
               });
}

SmpBackend::TorchWorkPtr SmpBackend::recv(Tensors& tensors, int peer, int tag) {
  const at::Tensor& tensor = only("recv", tensors);
  return start(c10d::OpType::RECV, "smp:recv", c10d::kUnsetTimeout, tensors, tensor,
               [&](comm::Communicator& communicator, Steps& steps) {
                 const Elements to = moved("recv", tensor, &steps.after);
                 keep(steps, to);
                 steps.parts.push_back(
                     communicator.recv(to.data(), to.count, to.dtype, peer, label_of(tag)));
               });
}

SmpBackend::TorchWorkPtr SmpBackend::barrier(const c10d::BarrierOptions& options) {
  return start(c10d::OpType::BARRIER, "smp:barrier", options.timeout, {}, {},
               [](comm::Communicator& communicator, Steps& steps) {
                 steps.parts.push_back(communicator.barrier(kLabel));
               });
}

}  // namespace smp::pytorch
