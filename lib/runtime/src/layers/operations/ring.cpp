#include "layers/operations/ring.h"

#include <array>
#include <utility>

#include "kernels/cpu_ring_attention.h"
#include "ledger/tensor_factories.h"
#include "ledger/torch_dtype.h"
#include "smp/plan/base/check.h"

namespace smp::layers {
namespace {

using kernels::AttentionGradients;
using kernels::AttentionInputs;
using kernels::AttentionShape;

void finish(comm::WorkPtr& work) {
  if (work) work->wait();
  work.reset();
}

// Two buffers of a rank's messages to the next rank and from the one before it: one is sent while
// the other is filled.
class Passing {
 public:
  Passing(const kernels::ContextParallel& context, std::string_view label)
      : ring_(*context.ring),
        label_(label),
        next_((ring_.rank() + 1) % ring_.size()),
        before_((ring_.rank() + ring_.size() - 1) % ring_.size()) {}

  comm::WorkPtr send(const at::Tensor& x) const {
    return ring_.send(x.const_data_ptr(), x.numel(), ledger::dtype_of(x.scalar_type()), next_,
                      label_);
  }
  comm::WorkPtr receive(const at::Tensor& x) const {
    return ring_.recv(x.mutable_data_ptr(), x.numel(), ledger::dtype_of(x.scalar_type()), before_,
                      label_);
  }
  // The rank whose block is here after so many hops, and its tokens.
  model::TokenSlices slices_after(int64_t hops, const AttentionShape& shape) const {
    const int64_t ranks = ring_.size();
    return model::ring_slices(shape.keys, {ranks, (ring_.rank() + ranks - hops) % ranks});
  }
  int64_t hops() const { return ring_.size() - 1; }

 private:
  comm::Communicator& ring_;
  const std::string_view label_;
  const int next_, before_;
};

// The blocks of keys and values that go round.
class Blocks {
 public:
  Blocks(const Passing& passing, const AttentionShape& shape, const at::Tensor& like)
      : passing_(passing) {
    for (at::Tensor& buffer : buffers_) {
      buffer =
          ledger::empty_tensor({shape.batch * shape.sequence, shape.kv_cols()}, like.options());
    }
  }

  const at::Tensor& here() const { return buffers_[here_]; }
  // Passes on the block that is here, while the one behind it comes.
  void start_hop() {
    received_ = passing_.receive(buffers_[1 - here_]);
    sent_ = passing_.send(buffers_[here_]);
  }
  void finish_hop() {
    finish(received_);
    finish(sent_);
    here_ = 1 - here_;
  }

 private:
  const Passing& passing_;
  std::array<at::Tensor, 2> buffers_;
  size_t here_ = 0;
  comm::WorkPtr sent_, received_;  // behind their buffers
};

}  // namespace

void ring_forward(const kernels::ContextParallel& context, const AttentionShape& shape,
                  const AttentionInputs& inputs, const at::Tensor& output,
                  const at::Tensor& log_sums) {
  const Passing passing(context, "context.forward");
  Blocks blocks(passing, shape, output);
  const bool is_wide = output.scalar_type() == log_sums.scalar_type();
  const at::Tensor sums =
      is_wide ? output : ledger::empty_tensor(output.sizes(), log_sums.options());
  kernels::cpu_ring_keys(shape, inputs, blocks.here());
  for (int64_t hop = 0; hop <= passing.hops(); ++hop) {
    if (hop < passing.hops()) blocks.start_hop();
    kernels::cpu_ring_forward(shape, inputs, blocks.here(), passing.slices_after(hop, shape),
                              hop == 0, sums, log_sums);
    if (hop < passing.hops()) blocks.finish_hop();
  }
  if (!is_wide) output.copy_(sums);
}

// A rank adds its part to the sum that has come with a block, and passes it on. Half of the pairs
// attend to the rank's own block at first, while another block comes, and the others at last, while
// the gradient of its own block that the others have summed comes home.
void ring_backward(const kernels::ContextParallel& context, const AttentionShape& shape,
                   const AttentionInputs& inputs, const at::Tensor& output,
                   const at::Tensor& output_gradient, const at::Tensor& log_sums,
                   const AttentionGradients& gradients) {
  const Passing passing(context, "context.backward");
  Blocks blocks(passing, shape, output);
  const auto wide = [&](int64_t columns) {
    return ledger::empty_tensor({shape.batch * shape.sequence, columns}, log_sums.options());
  };
  const at::Tensor d_queries = wide(shape.query_cols()).zero_();
  std::array<at::Tensor, 2> parts = {wide(shape.kv_cols()), wide(shape.kv_cols())};
  const at::Tensor come = wide(shape.kv_cols()), own = wide(shape.kv_cols()).zero_();
  std::array<comm::WorkPtr, 2> sent;
  comm::WorkPtr received;
  const auto attend = [&](int64_t hop, const kernels::AttentionPart& pairs,
                          const at::Tensor& part) {
    kernels::cpu_ring_backward(shape, inputs, blocks.here(), passing.slices_after(hop, shape),
                               hop == 0, pairs, output, output_gradient, log_sums, d_queries, part,
                               gradients);
  };
  const kernels::AttentionPart all = kernels::all_pairs(shape);
  const int64_t half = all.end / 2;
  kernels::cpu_ring_keys(shape, inputs, blocks.here());
  blocks.start_hop();
  attend(0, {0, half}, own);
  for (int64_t hop = 1; hop <= passing.hops(); ++hop) {
    blocks.finish_hop();
    if (hop < passing.hops()) blocks.start_hop();
    const at::Tensor& part = parts[static_cast<size_t>(hop % 2)];
    finish(sent[static_cast<size_t>(hop % 2)]);
    attend(hop, all, part.zero_());
    if (received) {
      finish(received);
      part.add_(come);
    }
    sent[static_cast<size_t>(hop % 2)] = passing.send(part);
    received = passing.receive(come);
  }
  kernels::cpu_ring_keys(shape, inputs, blocks.here());
  attend(0, {half, all.end}, own);
  finish(received);
  for (comm::WorkPtr& work : sent) finish(work);
  own.add_(come);
  kernels::cpu_ring_turn_back(shape, inputs, d_queries, own, gradients);
}

}  // namespace smp::layers
