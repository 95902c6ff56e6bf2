#include "layers/operations/kernels_of.h"
#include "ledger/torch_dtype.h"
#include "smp/plan/base/check.h"

namespace smp::layers {
namespace {

// Waits for a message, or leaves that to the operation that does.
void start_or_wait(Frame& frame, comm::WorkPtr work) {
  if (frame.as<program::MessageAttributes>().waits) {
    work->wait();
  } else {
    frame.start(frame.operation().out(0), std::move(work));
  }
}

comm::Communicator& group_of(const Frame& frame, const at::Tensor& x) {
  SMP_CHECK(x.is_contiguous());
  return *frame.group().communicator;
}

at::Tensor padded(const at::Tensor& x, int64_t columns) {
  if (x.size(1) == columns) return x;
  at::Tensor wider = ledger::zero_tensor({x.size(0), columns}, x.options());
  wider.narrow(1, 0, x.size(1)).copy_(x);
  return wider;
}

// The ranks' parts may differ by a channel, and are sent as large as the first one's.
at::Tensor gathered_parts(const Frame& frame, at::Tensor x) {
  comm::Communicator& group = group_of(frame, x);
  at::Tensor parts =
      ledger::empty_tensor({frame.group().degree * x.size(0), x.size(1)}, x.options());
  group
      .all_gather(x.data_ptr(), parts.data_ptr(), x.numel(), ledger::dtype_of(x.scalar_type()),
                  "tensor.forward")
      ->wait();
  return parts;
}

}  // namespace

void run_own_tokens(Frame& frame) {
  const at::Tensor& y = frame.make(0);
  y.copy_(frame.in(0).narrow(0, frame.as<program::OwnTokensAttributes>().first, y.size(0)));
}

void run_all_reduce(Frame& frame) {
  const at::Tensor& x = frame.in(0);
  start_or_wait(frame, group_of(frame, x).all_reduce(
                           x.data_ptr(), x.data_ptr(), x.numel(), ledger::dtype_of(x.scalar_type()),
                           comm::ReduceOp::kSum, frame.as<program::MessageAttributes>().label));
  frame.set_over(0, x);
}

void run_all_gather(Frame& frame) {
  const at::Tensor& x = frame.in(0);
  const at::Tensor& y = frame.make(0);
  start_or_wait(frame, group_of(frame, x).all_gather(x.data_ptr(), y.data_ptr(), x.numel(),
                                                     ledger::dtype_of(x.scalar_type()),
                                                     frame.as<program::MessageAttributes>().label));
}

void run_reduce_scatter(Frame& frame) {
  const at::Tensor& x = frame.in(0);
  const at::Tensor& y = frame.make(0);
  start_or_wait(frame, group_of(frame, x).reduce_scatter(
                           x.data_ptr(), y.data_ptr(), x.numel(), ledger::dtype_of(x.scalar_type()),
                           comm::ReduceOp::kSum, frame.as<program::MessageAttributes>().label));
}

void run_wait(Frame& frame) {
  frame.wait(frame.operation().in(0));
  frame.set_over(0, frame.in(0));
}

void run_gather_channels(Frame& frame) {
  const auto& [cut, place] = frame.as<program::ChannelAttributes>();
  const at::Tensor& x = frame.in(0);
  const int64_t batch = x.size(0), largest = cut.size({place.degree, 0});
  const at::Tensor parts = gathered_parts(frame, padded(x, largest));
  const at::Tensor& y = frame.make(0);
  for (int64_t rank = 0; rank < place.degree; ++rank) {
    const model::TensorPlace there{place.degree, rank};
    const int64_t size = cut.size(there);
    y.narrow(1, cut.begin(there), size)
        .copy_(parts.narrow(0, rank * batch, batch).narrow(1, 0, size));
  }
}

void run_own_channels(Frame& frame) {
  const auto& [cut, place] = frame.as<program::ChannelAttributes>();
  frame.make(0).copy_(frame.in(0).narrow(1, cut.begin(place), cut.size(place)));
}

}  // namespace smp::layers
