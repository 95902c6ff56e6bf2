#include "layers/operations/kernels_of.h"
#include "layers/operations/ring.h"
#include "smp/plan/base/check.h"

namespace smp::layers {
namespace {

kernels::AttentionShape shape_of(const Frame& frame) {
  const auto& attributes = frame.as<program::AttentionAttributes>();
  kernels::AttentionShape shape;
  static_cast<program::AttentionAttributes&>(shape) = attributes;
  shape.dropout = frame.dropout(attributes.weight_dropout);
  const kernels::CallContext& call = frame.call();
  if (call.document_starts != nullptr) {
    SMP_CHECK(shape.causal);
    SMP_CHECK_EQ(call.document_starts->numel(), shape.batch * shape.sequence);
    shape.documents = call.document_starts->const_data_ptr<int64_t>();
    shape.documents_on_host = call.document_starts_on_host->const_data_ptr<int64_t>();
  }
  return shape;
}

// Those of this rank's heads.
at::Tensor of_heads(const Frame& frame, const at::Tensor& sinks) {
  const auto& attributes = frame.as<program::AttentionAttributes>();
  return sinks.defined() ? sinks.narrow(0, attributes.first_sink, attributes.heads) : sinks;
}

kernels::AttentionInputs inputs_of(const Frame& frame) {
  return {.packed = frame.in(0),
          .kv = frame.in(1),
          .bias = frame.in(2),
          .q_weight = frame.in(3),
          .q_bias = frame.in(4),
          .k_weight = frame.in(5),
          .k_bias = frame.in(6),
          .table = frame.in(7),
          .sinks = of_heads(frame, frame.in(8))};
}

}  // namespace

void run_attention(Frame& frame) {
  const at::Tensor& attended = frame.make(0);
  const at::Tensor& log_sums = frame.make(1);
  const kernels::AttentionShape shape = shape_of(frame);
  if (shape.context_degree > 1) {
    return ring_forward(frame.context(), shape, inputs_of(frame), attended, log_sums);
  }
  kernels::functions_of(attended).attention_forward(shape, inputs_of(frame), attended, log_sums);
}

// Overwrites queries, keys and values with their gradients.
void run_attention_backward(Frame& frame) {
  kernels::AttentionGradients small;
  if (frame.has_out(2)) small.table = frame.make_zero(2);
  if (frame.has_out(3)) small.norms = frame.make_zero(3);
  if (frame.has_out(4)) small.sinks = of_heads(frame, frame.make_zero(4));
  const at::Tensor& attended = frame.in(9);
  const kernels::AttentionShape shape = shape_of(frame);
  if (shape.context_degree > 1) {
    ring_backward(frame.context(), shape, inputs_of(frame), attended, frame.in(10), frame.in(11),
                  small);
  } else {
    kernels::functions_of(attended).attention_backward(shape, inputs_of(frame), attended,
                                                       frame.in(10), frame.in(11), small);
  }
  frame.set_over(0, frame.in(0));
  if (frame.has_out(1)) frame.set_over(1, frame.in(1));
}

void run_latent_heads(Frame& frame) {
  const at::Tensor& packed = frame.make(0);
  kernels::functions_of(packed).latent_heads(frame.as<program::LatentAttributes>(), frame.in(0),
                                             frame.in(1), frame.in(2), packed);
}

void run_latent_heads_backward(Frame& frame) {
  const at::Tensor& packed = frame.in(0);
  kernels::functions_of(packed).latent_heads_backward(frame.as<program::LatentAttributes>(), packed,
                                                      frame.make(0), frame.make(1), frame.make(2));
}

void run_split_columns(Frame& frame) {
  const at::Tensor& x = frame.in(0);
  const at::Tensor& a = frame.make(0);
  const at::Tensor& b = frame.make(1);
  a.copy_(x.narrow(1, 0, a.size(1)));
  b.copy_(x.narrow(1, a.size(1), b.size(1)));
}

void run_join_columns(Frame& frame) {
  const at::Tensor& a = frame.in(0);
  const at::Tensor& b = frame.in(1);
  const at::Tensor& x = frame.make(0);
  x.narrow(1, 0, a.size(1)).copy_(a);
  x.narrow(1, a.size(1), b.size(1)).copy_(b);
}

void run_place_columns(Frame& frame) {
  const at::Tensor& x = frame.in(0);
  frame.make_zero(0).narrow(1, frame.as<program::ColumnsAttributes>().first, x.size(1)).copy_(x);
}

void run_take_columns(Frame& frame) {
  const at::Tensor& x = frame.make(0);
  x.copy_(frame.in(0).narrow(1, frame.as<program::ColumnsAttributes>().first, x.size(1)));
}

}  // namespace smp::layers
