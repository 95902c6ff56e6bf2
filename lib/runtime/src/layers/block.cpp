#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "layers/parameter_views.h"
#include "smp/plan/check.h"

namespace smp {
namespace {

// Runs a product of a weight's gradient, at once or put off.
template <typename Piece>
void now_or_later(WeightWork* later, Piece piece) {
  if (later == nullptr) {
    piece();
  } else {
    later->put_off(std::move(piece));
  }
}

Activation activation_of(MlpKind mlp) {
  switch (mlp) {
    case MlpKind::kGelu:
    case MlpKind::kGeglu: return Activation::kGelu;
    case MlpKind::kRelu: return Activation::kRelu;
    case MlpKind::kSwiglu: return Activation::kSilu;
  }
  check_failed(__FILE__, __LINE__, "unknown mlp");
}

// The attention's small parameters as the kernels want them, for one call.
template <typename T>
class SmallParameters {
 public:
  SmallParameters(const Parameter& bias, const Norm& q_norm, const Norm& k_norm)
      : bias_(vector(bias)),
        q_weight_(vector(q_norm.weight)),
        q_bias_(vector(q_norm.bias)),
        k_weight_(vector(k_norm.weight)),
        k_bias_(vector(k_norm.bias)) {}

  // `gradients` [2 or 4, head_dim] of the norms: q's and k's weights, then their biases.
  AttentionParameters<Wide<T>> given(const at::Tensor& gradients) const {
    AttentionParameters<Wide<T>> given{.bias = bias_.data(),
                                       .q_norm = {q_weight_.data(), q_bias_.data()},
                                       .k_norm = {k_weight_.data(), k_bias_.data()}};
    if (gradients.defined()) {
      auto* rows = data_of<Wide<T>>(gradients);
      const int64_t d = gradients.size(1);
      given.q_norm.weight_gradient = rows;
      given.k_norm.weight_gradient = rows + d;
      if (gradients.size(0) == 4) {
        given.q_norm.bias_gradient = rows + 2 * d;
        given.k_norm.bias_gradient = rows + 3 * d;
      }
    }
    return given;
  }

 private:
  static WideVector<T> vector(const Parameter& parameter) {
    return {parameter.defined() ? parameter.weight.numel() : 0, data_of<T>(parameter.weight)};
  }

  WideVector<T> bias_, q_weight_, q_bias_, k_weight_, k_bias_;
};

// A transformer block:
//   x1 = x + output(attention(norm(x)))
//   y = x1 + down(activation(up(norm(x1))))
// or, with a parallel residual, where both read x, and may share its norm:
//   y = x + output(attention(norm(x))) + down(activation(up(norm(x))))
// q, k, v and (gated) gate, up are one product each. The norms' results and the activation's are
// computed again in backward: they cost little and would be half of what is kept. What a put-off
// weight's gradient holds is its two factors alone: x, x1 and the statistics go with the backward.
class Block final : public Layer {
 public:
  Block(const ModelSpec& model, const ParameterViews& parameters, const TensorParallel& group);

  std::vector<at::Tensor> forward(const std::vector<at::Tensor>& inputs, Saved* saved) override;
  std::vector<at::Tensor> backward(Saved saved, std::vector<at::Tensor> gradients,
                                   WeightWork* later) override;

 private:
  // What a call keeps; the tensors that it has, in this order, are its Saved.
  struct Kept {
    at::Tensor input;  // [b, s, h]
    at::Tensor attention_stats, packed, attended, log_sums;
    at::Tensor x1;         // undefined where the MLP reads x
    at::Tensor mlp_stats;  // undefined where the norm is shared
    at::Tensor u;
  };

  // Both give the gradient of their norm's result, summed over the group, and let go of what they
  // are done with. `dy` is the gradient of what the branch adds to the residual.
  at::Tensor backward_mlp(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& stats,
                          Kept& kept, WeightWork* later) const;
  at::Tensor backward_attention(const at::Tensor& dy, const at::Tensor& x, Kept& kept,
                                WeightWork* later) const;
  void backward_heads(const at::Tensor& dy, Kept& kept) const;
  AttentionShape shape_of(const at::Tensor& x) const;  // x [b, s, h]
  ActivationShape activation_shape(int64_t tokens) const;

  const bool is_parallel_, shares_norm_;
  Norm attention_norm_, mlp_norm_, q_norm_, k_norm_;
  Linear qkv_, output_, up_, down_;
  ActivationShape activation_;  // without rows
  AttentionShape attention_;    // without batch and sequence
  TensorParallel group_;
};

Block::Block(const ModelSpec& model, const ParameterViews& parameters, const TensorParallel& group)
    : is_parallel_(model.parallel_residual),
      shares_norm_(model.shared_norm),
      attention_norm_(parameters.norm("attention_norm", model.norm_epsilon)),
      mlp_norm_(parameters.norm("mlp_norm", model.norm_epsilon)),
      q_norm_(parameters.norm("attention.q_norm", model.norm_epsilon)),
      k_norm_(parameters.norm("attention.k_norm", model.norm_epsilon)),
      qkv_{parameters.joined("attention.q.weight", "attention.v.weight"),
           parameters.joined("attention.q.bias", "attention.v.bias")},
      output_(parameters.linear("attention.output")),
      up_(parameters.linear("mlp.up")),
      down_(parameters.linear("mlp.down")),
      group_(group) {
  SMP_CHECK(is_parallel_ || !shares_norm_);
  activation_.activation = activation_of(model.mlp);
  activation_.gated = is_gated(model.mlp);
  if (activation_.gated) {
    up_ = {parameters.joined("mlp.gate.weight", "mlp.up.weight"),
           parameters.joined("mlp.gate.bias", "mlp.up.bias")};
  }
  activation_.cols = down_.weight.weight.size(1);
  attention_.heads = parameters.at("attention.q.weight").weight.size(0) / model.head_dim;
  attention_.kv_heads = parameters.at("attention.k.weight").weight.size(0) / model.head_dim;
  attention_.head_dim = model.head_dim;
  if (model.position_embedding == PositionKind::kRotary) attention_.rope_theta = model.rope_theta;
  attention_.has_head_norms = model.qk_norm;
  attention_.centered_norms = model.norm == NormKind::kLayerNorm;
  attention_.norm_epsilon = model.norm_epsilon;
}

AttentionShape Block::shape_of(const at::Tensor& x) const {
  AttentionShape shape = attention_;
  shape.batch = x.size(0);
  shape.sequence = x.size(1);
  return shape;
}

ActivationShape Block::activation_shape(int64_t tokens) const {
  ActivationShape shape = activation_;
  shape.rows = tokens;
  return shape;
}

std::vector<at::Tensor> Block::forward(const std::vector<at::Tensor>& inputs, Saved* saved) {
  Kept kept;
  kept.input = inputs.at(0);
  const AttentionShape shape = shape_of(kept.input);
  const int64_t tokens = shape.batch * shape.sequence;
  const at::Tensor x = kept.input.view({tokens, -1});  // [n, h]

  kept.attention_stats = attention_norm_.empty_stats(x);
  // [n, (q + k + v)/t]
  kept.packed = qkv_.forward(attention_norm_.forward(x, kept.attention_stats));
  kept.attended = at::empty({tokens, shape.output_cols()}, x.options());
  kept.log_sums = at::empty({shape.log_sums()}, wide_options(x));
  {
    const at::Tensor scratch = at::empty({shape.forward_scratch(is_narrow(x))}, wide_options(x));
    with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      const SmallParameters<T> small(qkv_.bias, q_norm_, k_norm_);
      attention_forward(shape, small.given({}), data_of<T>(kept.packed), data_of<T>(kept.attended),
                        data_of<Wide<T>>(kept.log_sums), data_of<Wide<T>>(scratch));
    });
  }
  const at::Tensor x1 = output_.forward_residual(kept.attended, x, group_);

  const at::Tensor& mlp_input = is_parallel_ ? x : x1;
  at::Tensor normal;
  if (shares_norm_) {
    normal = attention_norm_.recompute(x, kept.attention_stats);
  } else {
    kept.mlp_stats = mlp_norm_.empty_stats(x);
    normal = mlp_norm_.forward(mlp_input, kept.mlp_stats);
  }
  kept.u = up_.forward(normal);  // [n, f/t] or [n, 2 f/t]
  normal.reset();
  const at::Tensor activated = at::empty({tokens, activation_.cols}, x.options());
  with_element_type(x, [&](auto zero) {
    using T = decltype(zero);
    activation_forward(activation_shape(tokens), data_of<T>(kept.u), data_of<T>(up_.bias.weight),
                       data_of<T>(activated));
  });
  const at::Tensor y = down_.forward_residual(activated, x1, group_);
  if (!is_parallel_) kept.x1 = x1;
  if (saved != nullptr) {
    *saved = {kept.input, kept.attention_stats, kept.packed, kept.attended, kept.log_sums,
              kept.x1,    kept.mlp_stats,       kept.u};
  }
  return {y.view(kept.input.sizes())};
}

std::vector<at::Tensor> Block::backward(Saved saved, std::vector<at::Tensor> gradients,
                                        WeightWork* later) {
  SMP_CHECK_EQ(saved.size(), 8u);
  Kept kept{saved[0], saved[1], saved[2], saved[3], saved[4], saved[5], saved[6], saved[7]};
  saved.clear();
  const std::vector<int64_t> sizes = kept.input.sizes().vec();
  const int64_t tokens = sizes[0] * sizes[1];
  const at::Tensor dy = std::move(gradients[0]).contiguous().view({tokens, -1});
  gradients.clear();
  const at::Tensor x = kept.input.view({tokens, -1});

  at::Tensor dx1 = backward_mlp(dy, is_parallel_ ? x : kept.x1,
                                shares_norm_ ? kept.attention_stats : kept.mlp_stats, kept, later);
  if (!shares_norm_) mlp_norm_.backward(dx1, is_parallel_ ? x : kept.x1, kept.mlp_stats, dy);
  kept.x1.reset();
  kept.mlp_stats.reset();

  at::Tensor dx = backward_attention(is_parallel_ ? dy : dx1, x, kept, later);
  if (shares_norm_) {  // both branches' gradients of the one norm's result
    with_element_type(dx, [&](auto zero) {
      using T = decltype(zero);
      add_residual(tokens, dx.size(1), data_of<T>(dx1), nullptr, data_of<T>(dx));
    });
  }
  attention_norm_.backward(dx, x, kept.attention_stats, shares_norm_ ? dy : dx1);
  return {dx.view(sizes)};
}

at::Tensor Block::backward_mlp(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& stats,
                               Kept& kept, WeightWork* later) const {
  at::Tensor activated, du;
  {
    at::Tensor gradient = down_.input_gradient(dy);
    with_element_type(dy, [&](auto zero) {
      using T = decltype(zero);
      activation_backward(activation_shape(gradient.size(0)), data_of<T>(kept.u),
                          data_of<T>(up_.bias.weight), data_of<T>(gradient),
                          data_of<Wide<T>>(up_.bias.gradient));
    });
    activated = std::move(activation_.gated ? gradient : kept.u);
    du = std::move(activation_.gated ? kept.u : gradient);
  }
  down_.add_bias_gradient(dy);
  now_or_later(later, [this, dy, activated = std::move(activated)] {
    down_.add_weight_gradient(dy, activated);
  });

  at::Tensor dx = up_.input_gradient(du);
  const WorkPtr reduction = start_all_reduce(group_, dx, ReduceOp::kSum, "tensor.backward");
  const Norm& norm = shares_norm_ ? attention_norm_ : mlp_norm_;
  now_or_later(later, [this, du = std::move(du), normal = norm.recompute(x, stats)] {
    up_.add_weight_gradient(du, normal);
  });
  if (reduction) reduction->wait();
  return dx;
}

at::Tensor Block::backward_attention(const at::Tensor& dy, const at::Tensor& x, Kept& kept,
                                     WeightWork* later) const {
  output_.add_bias_gradient(dy);
  now_or_later(later,
               [this, dy, attended = kept.attended] { output_.add_weight_gradient(dy, attended); });
  backward_heads(dy, kept);
  kept.attended.reset();
  kept.log_sums.reset();

  at::Tensor packed = std::move(kept.packed);
  at::Tensor dx = qkv_.input_gradient(packed);
  const WorkPtr reduction = start_all_reduce(group_, dx, ReduceOp::kSum, "tensor.backward");
  qkv_.add_bias_gradient(packed);
  now_or_later(later, [this, packed = std::move(packed),
                       normal = attention_norm_.recompute(x, kept.attention_stats)] {
    qkv_.add_weight_gradient(packed, normal);
  });
  if (reduction) reduction->wait();
  return dx;
}

// kept.packed becomes its gradient. The norms of heads are every tensor rank's, each of which has
// worked on its own heads: their gradients are summed.
void Block::backward_heads(const at::Tensor& dy, Kept& kept) const {
  const AttentionShape shape = shape_of(kept.input);
  const at::Tensor attended_gradient = output_.input_gradient(dy);
  const at::Tensor scratch = at::empty({shape.backward_scratch(is_narrow(dy))}, wide_options(dy));
  at::Tensor norm_gradients;
  if (shape.has_head_norms) {
    norm_gradients = at::zeros({shape.centered_norms ? 4 : 2, shape.head_dim}, wide_options(dy));
  }
  with_element_type(dy, [&](auto zero) {
    using T = decltype(zero);
    const SmallParameters<T> small(qkv_.bias, q_norm_, k_norm_);
    attention_backward(shape, small.given(norm_gradients), data_of<T>(kept.packed),
                       data_of<T>(kept.attended), data_of<T>(attended_gradient),
                       data_of<Wide<T>>(kept.log_sums), data_of<Wide<T>>(scratch));
  });
  if (!shape.has_head_norms) return;
  all_reduce(group_, norm_gradients, ReduceOp::kSum, "tensor.head_norms");
  int64_t row = 0;
  for (const Parameter* parameter :
       {&q_norm_.weight, &k_norm_.weight, &q_norm_.bias, &k_norm_.bias}) {
    if (!parameter->defined()) continue;
    at::Tensor gradient = parameter->gradient;
    gradient.add_(norm_gradients.select(0, row++));
  }
}

}  // namespace

std::unique_ptr<Layer> make_block(const ModelSpec& model, const ParameterViews& parameters,
                                  const TensorParallel& group) {
  return std::make_unique<Block>(model, parameters, group);
}

}  // namespace smp
