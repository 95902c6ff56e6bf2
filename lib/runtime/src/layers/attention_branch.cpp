#include <cmath>

#include "layers/branches.h"
#include "ledger/tensor_factories.h"
#include "smp/plan/base/check.h"

namespace smp::layers {
namespace {

kernels::RotaryShape rotary_of(const ModelSpec& model) {
  return {.dim = rotary_dim_of(model),
          .theta = model.rope_theta,
          .scaling = model.rope_scaling,
          .factor = model.rope_scaling_factor,
          .low_freq_factor = model.rope_low_freq_factor,
          .high_freq_factor = model.rope_high_freq_factor,
          .original_positions = static_cast<double>(model.rope_original_positions)};
}

// The projections of cross-attention: queries of the block's input, keys and values of the encoder
// output.
void split_projection(const ParameterViews& parameters, const std::string& name,
                      kernels::Linear& queries, kernels::Linear& kv) {
  queries = parameters.linear(name + ".q");
  kv = {parameters.joined(name + ".k.weight", name + ".v.weight"),
        parameters.joined(name + ".k.bias", name + ".v.bias")};
}

// `sum` += x, or x itself where there is nothing yet.
void add_to(at::Tensor& sum, at::Tensor x) {
  if (!sum.defined()) {
    sum = std::move(x);
    return;
  }
  kernels::functions_of(x).add_residual(x, {}, sum, {});
}

}  // namespace

AttentionBranch::AttentionBranch(const ModelSpec& model, const ParameterViews& parameters,
                                 const std::string& name, bool causal, bool reads_encoder_output,
                                 const kernels::TensorRegion& region)
    : layer_(parameters.layer()),
      hidden_dropout_(model.hidden_dropout),
      attention_dropout_(model.attention_dropout),
      reads_encoder_output_(reads_encoder_output),
      norm_(parameters.norm(name + "_norm", model.norm_epsilon)),
      q_norm_(parameters.norm(name + ".q_norm", model.norm_epsilon)),
      k_norm_(parameters.norm(name + ".k_norm", model.norm_epsilon)),
      bias_(parameters.joined(name + ".q.bias", name + ".v.bias")),
      output_(parameters.linear(name + ".output")),
      region_(region) {
  if (reads_encoder_output) {
    split_projection(parameters, name, projection_, kv_);
  } else {
    projection_ = {parameters.joined(name + ".q.weight", name + ".v.weight"), bias_};
  }
  attention_.causal = causal;
  if (causal) attention_.window = model.sliding_window;
  attention_.heads = parameters.at(name + ".q.weight").weight.size(0) / model.head_dim;
  attention_.kv_heads = parameters.at(name + ".k.weight").weight.size(0) / model.head_dim;
  attention_.first_head = region.rank() * attention_.heads;
  attention_.head_dim = model.head_dim;
  attention_.scale = model::score_scale(model);
  if (model.position_embedding == PositionKind::kRotary) attention_.rotary = rotary_of(model);
  attention_.has_head_norms = model.qk_norm;
  attention_.centered_norms = model.norm == NormKind::kLayerNorm;
  attention_.norm_epsilon = model.norm_epsilon;
}

kernels::AttentionShape AttentionBranch::shape_of(const at::Tensor& x, int64_t batch,
                                                  const AttentionSideInputs& side,
                                                  const kernels::CallContext& call) const {
  kernels::AttentionShape shape = attention_;
  shape.batch = batch;
  const int64_t parts = region_.parts();
  shape.sequence = x.size(0) * parts / batch;
  shape.keys = (side.encoder_output.defined() ? side.encoder_output : x).size(0) * parts / batch;
  // A window over all keys is no restriction, and attention without a window is faster.
  if (shape.window >= shape.keys) shape.window = 0;
  if (side.table.defined()) shape.relative_buckets = side.table.size(0);
  if (call.document_starts != nullptr) {
    SMP_CHECK(shape.causal && !reads_encoder_output_);
    SMP_CHECK_EQ(call.document_starts->numel(), shape.batch * shape.sequence);
    shape.documents = call.document_starts->const_data_ptr<int64_t>();
    shape.documents_on_host = call.document_starts_on_host->const_data_ptr<int64_t>();
  }
  const kernels::DropoutSite site = reads_encoder_output_ ? kernels::DropoutSite::kCrossAttention
                                                          : kernels::DropoutSite::kAttention;
  shape.dropout = kernels::dropout_of(attention_dropout_, call, layer_, site, shape.sequence);
  return shape;
}

kernels::AttentionInputs AttentionBranch::inputs_of(const AttentionSideInputs& side,
                                                    const Kept& kept) const {
  return {.packed = kept.packed,
          .kv = kept.kv,
          .bias = bias_.weight,
          .q_weight = q_norm_.weight.weight,
          .q_bias = q_norm_.bias.weight,
          .k_weight = k_norm_.weight.weight,
          .k_bias = k_norm_.bias.weight,
          .table = side.table};
}

kernels::Dropout AttentionBranch::hidden_dropout(const kernels::AttentionShape& shape,
                                                 const kernels::CallContext& call) const {
  const kernels::DropoutSite site = reads_encoder_output_
                                        ? kernels::DropoutSite::kCrossAttentionOutput
                                        : kernels::DropoutSite::kAttentionOutput;
  return region_.of_own_tokens(
      kernels::dropout_of(hidden_dropout_, call, layer_, site, shape.sequence),
      shape.batch * shape.sequence);
}

at::Tensor AttentionBranch::forward(const at::Tensor& x, int64_t batch,
                                    const AttentionSideInputs& side, Kept& kept,
                                    const kernels::CallContext& call) const {
  const kernels::AttentionShape shape = shape_of(x, batch, side, call);
  kept.stats = norm_.empty_stats(x);
  kept.packed = projection_.forward(region_.gathered(norm_.forward(x, kept.stats), kForward));
  if (side.encoder_output.defined())
    kept.kv = kv_.forward(region_.gathered(side.encoder_output, kForward));
  kept.attended = ledger::empty_tensor({kept.packed.size(0), shape.output_cols()}, x.options());
  kept.log_sums = ledger::empty_tensor({shape.log_sums()}, kernels::wide_options(x));
  kernels::functions_of(x).attention_forward(shape, inputs_of(side, kept), kept.attended,
                                             kept.log_sums);
  return output_.forward_residual(kept.attended, x, region_, hidden_dropout(shape, call));
}

at::Tensor AttentionBranch::backward(const at::Tensor& dy, const at::Tensor& x, int64_t batch,
                                     const AttentionSideInputs& side, Kept& kept,
                                     AttentionSideInputs& gradients,
                                     const kernels::CallContext& call,
                                     DeferredWeightGradients* deferred) const {
  const kernels::AttentionShape shape = shape_of(x, batch, side, call);
  at::Tensor attended_gradient;
  {
    at::Tensor added = kernels::dropped(hidden_dropout(shape, call), dy);
    const at::Tensor all = region_.gathered(added, kBackward);
    output_.add_bias_gradient(all);
    run_or_defer_gathered(deferred, region_, std::move(added), all,
                          [this, attended = kept.attended](const at::Tensor& factor) {
                            output_.add_weight_gradient(factor, attended);
                          });
    attended_gradient = output_.input_gradient(all);
  }
  backward_heads(std::move(attended_gradient), shape, side, kept, gradients);
  kept.attended.reset();
  kept.log_sums.reset();

  at::Tensor packed = std::move(kept.packed);
  kernels::TensorRegion::Sum dx = region_.start_sum(projection_.input_gradient(packed), kBackward);
  projection_.add_bias_gradient(packed);
  run_or_defer_gathered(deferred, region_, norm_.recompute(x, kept.stats), {},
                        [this, packed = std::move(packed)](const at::Tensor& normal) {
                          projection_.add_weight_gradient(packed, normal);
                        });
  if (side.encoder_output.defined())
    backward_encoder_output(side.encoder_output, std::move(kept.kv), gradients);
  return dx.wait();
}

// The weight gradient is never deferred: its factor, the encoder output, belongs to other blocks as
// well.
void AttentionBranch::backward_encoder_output(const at::Tensor& encoder_output, at::Tensor kv,
                                              AttentionSideInputs& gradients) const {
  at::Tensor part = kv_.input_gradient(kv);
  // Without sequence parallelism `part` is this rank's addend of a sum that the first decoder block
  // takes. With it the ranks have different tokens, so the sum must be taken here.
  if (region_.parts() > 1) part = region_.summed(std::move(part), kBackward);
  add_to(gradients.encoder_output, std::move(part));
  kv_.add_bias_gradient(kv);
  kv_.add_weight_gradient(kv, region_.gathered(encoder_output, kBackward));
}

// Overwrites the saved queries, keys and values with their gradients.
void AttentionBranch::backward_heads(at::Tensor attended_gradient,
                                     const kernels::AttentionShape& shape,
                                     const AttentionSideInputs& side, Kept& kept,
                                     AttentionSideInputs& gradients) const {
  const at::TensorOptions options = kernels::wide_options(attended_gradient);
  kernels::AttentionGradients small;
  if (side.table.defined()) small.table = ledger::zero_tensor(side.table.sizes(), options);
  if (shape.has_head_norms) {
    small.norms = ledger::zero_tensor({shape.centered_norms ? 4 : 2, shape.head_dim}, options);
  }
  kernels::functions_of(attended_gradient)
      .attention_backward(shape, inputs_of(side, kept), kept.attended, attended_gradient,
                          kept.log_sums, small);
  if (side.table.defined())
    add_to(gradients.table, small.table.to(attended_gradient.scalar_type()));
  if (shape.has_head_norms) add_head_norms(small.norms);
}

// Every tensor rank has a copy of the head norms' parameters and the gradient of its own heads. The
// gradients are summed.
void AttentionBranch::add_head_norms(at::Tensor& gradients) const {
  region_.all_reduce(gradients, comm::ReduceOp::kSum, "tensor.head_norms");
  int64_t row = 0;
  for (const kernels::Parameter* parameter :
       {&q_norm_.weight, &k_norm_.weight, &q_norm_.bias, &k_norm_.bias}) {
    if (!parameter->defined()) continue;
    at::Tensor gradient = parameter->gradient;
    gradient.add_(gradients.select(0, row++));
  }
}

}  // namespace smp::layers
