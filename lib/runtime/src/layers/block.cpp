#include <ATen/ops/empty.h>

#include "layers/parameter_views.h"

namespace smp {
namespace {

enum class Activation { kGelu, kSwiglu };

// Runs a product of a weight's gradient, at once or put off.
template <typename Piece>
void now_or_later(WeightWork* later, Piece piece) {
  if (later == nullptr) {
    piece();
  } else {
    later->put_off(std::move(piece));
  }
}

// A transformer block of either family:
//   x1 = x + output(attention(norm(x)))
//   y = x1 + down(activation(up(norm(x1))))
// q, k, v and (Llama) gate, up are one product each. The norms' results and the activation's are
// computed again in backward: they cost little and would be half of what is kept. What a put-off
// weight's gradient holds is its two factors alone: x, x1 and the statistics go with the backward.
class Block final : public Layer {
 public:
  Block(const ModelSpec& model, const ParameterViews& parameters, const TensorParallel& group);

  std::vector<at::Tensor> forward(const std::vector<at::Tensor>& inputs, Saved* saved) override;
  std::vector<at::Tensor> backward(Saved saved, std::vector<at::Tensor> gradients,
                                   WeightWork* later) override;

 private:
  // dy becomes the gradient of x1 (in a new tensor).
  at::Tensor backward_mlp(const at::Tensor& dy, at::Tensor x1, at::Tensor stats, at::Tensor u,
                          WeightWork* later) const;
  at::Tensor backward_attention(at::Tensor dx1, const at::Tensor& x, const at::Tensor& stats,
                                at::Tensor packed, at::Tensor attended, at::Tensor log_sums,
                                const AttentionShape& shape, WeightWork* later) const;
  AttentionShape shape_of(const at::Tensor& x) const;  // x [b, s, h]

  Norm attention_norm_, mlp_norm_;
  Linear qkv_, output_, up_, down_;
  Activation activation_;
  AttentionShape attention_;  // without batch and sequence
  TensorParallel group_;
};

Block::Block(const ModelSpec& model, const ParameterViews& parameters, const TensorParallel& group)
    : attention_norm_(parameters.norm("attention_norm", model.norm_epsilon)),
      mlp_norm_(parameters.norm("mlp_norm", model.norm_epsilon)),
      qkv_{parameters.joined("attention.q.weight", "attention.v.weight"),
           parameters.joined("attention.q.bias", "attention.v.bias")},
      output_(parameters.linear("attention.output")),
      up_(parameters.linear("mlp.up")),
      down_(parameters.linear("mlp.down")),
      activation_(model.family == ModelFamily::kGpt2 ? Activation::kGelu : Activation::kSwiglu),
      group_(group) {
  if (activation_ == Activation::kSwiglu) {
    up_.weight = parameters.joined("mlp.gate.weight", "mlp.up.weight");
  }
  attention_.heads = parameters.at("attention.q.weight").weight.size(0) / model.head_dim;
  attention_.kv_heads = parameters.at("attention.k.weight").weight.size(0) / model.head_dim;
  attention_.head_dim = model.head_dim;
  attention_.rope_theta = model.family == ModelFamily::kLlama ? model.rope_theta : 0;
}

AttentionShape Block::shape_of(const at::Tensor& x) const {
  AttentionShape shape = attention_;
  shape.batch = x.size(0);
  shape.sequence = x.size(1);
  return shape;
}

std::vector<at::Tensor> Block::forward(const std::vector<at::Tensor>& inputs, Saved* saved) {
  const at::Tensor& input = inputs.at(0);
  const AttentionShape shape = shape_of(input);
  const int64_t tokens = shape.batch * shape.sequence;
  const at::Tensor x = input.view({tokens, -1});  // [n, h]

  const at::Tensor attention_stats = attention_norm_.empty_stats(x);
  const at::Tensor packed =
      qkv_.forward(attention_norm_.forward(x, attention_stats));  // [n, (q + k + v)/t]
  const at::Tensor attended = at::empty({tokens, shape.output_cols()}, x.options());
  const at::Tensor log_sums = at::empty({shape.log_sums()}, x.options());
  {
    const at::Tensor scratch = at::empty({shape.forward_scratch()}, x.options());
    with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      attention_forward(shape, data_of<T>(packed), data_of<T>(qkv_.bias.weight),
                        data_of<T>(attended), data_of<T>(log_sums), data_of<T>(scratch));
    });
  }
  const at::Tensor x1 = output_.forward_residual(attended, x, group_);

  const at::Tensor mlp_stats = mlp_norm_.empty_stats(x1);
  const at::Tensor u = up_.forward(mlp_norm_.forward(x1, mlp_stats));  // [n, f/t] or [n, 2 f/t]
  const int64_t width = down_.weight.weight.size(1);
  const at::Tensor activated = at::empty({tokens, width}, x.options());
  with_element_type(x, [&](auto zero) {
    using T = decltype(zero);
    if (activation_ == Activation::kGelu) {
      gelu_forward(tokens, width, data_of<T>(u), data_of<T>(up_.bias.weight),
                   data_of<T>(activated));
    } else {
      swiglu_forward(tokens, width, data_of<T>(u), data_of<T>(activated));
    }
  });
  const at::Tensor y = down_.forward_residual(activated, x1, group_);
  if (saved != nullptr) {
    *saved = {input, attention_stats, packed, attended, log_sums, x1, mlp_stats, u};
  }
  return {y.view(input.sizes())};
}

std::vector<at::Tensor> Block::backward(Saved saved, std::vector<at::Tensor> gradients,
                                        WeightWork* later) {
  const at::Tensor input = std::move(saved[0]);
  const int64_t tokens = input.size(0) * input.size(1);
  const at::Tensor dy = std::move(gradients[0]).contiguous().view({tokens, -1});
  gradients.clear();
  at::Tensor dx1 =
      backward_mlp(dy, std::move(saved[5]), std::move(saved[6]), std::move(saved[7]), later);
  return {backward_attention(std::move(dx1), input.view({tokens, -1}), saved[1],
                             std::move(saved[2]), std::move(saved[3]), std::move(saved[4]),
                             shape_of(input), later)
              .view(input.sizes())};
}

at::Tensor Block::backward_mlp(const at::Tensor& dy, at::Tensor x1, at::Tensor stats, at::Tensor u,
                               WeightWork* later) const {
  at::Tensor activated, du;
  {
    at::Tensor gradient = down_.input_gradient(dy);
    with_element_type(dy, [&](auto zero) {
      using T = decltype(zero);
      const int64_t rows = gradient.size(0), cols = gradient.size(1);
      if (activation_ == Activation::kGelu) {
        gelu_backward(rows, cols, data_of<T>(u), data_of<T>(up_.bias.weight), data_of<T>(gradient),
                      data_of<T>(up_.bias.gradient));
        activated = std::move(u);
        du = std::move(gradient);
      } else {
        swiglu_backward(rows, cols, data_of<T>(u), data_of<T>(gradient));
        activated = std::move(gradient);
        du = std::move(u);
      }
    });
  }
  down_.add_bias_gradient(dy);
  now_or_later(later, [this, dy, activated = std::move(activated)] {
    down_.add_weight_gradient(dy, activated);
  });

  at::Tensor dx1 = up_.input_gradient(du);
  const WorkPtr reduction = start_all_reduce(group_, dx1, ReduceOp::kSum, "tensor.backward");
  now_or_later(later, [this, du = std::move(du), normal = mlp_norm_.recompute(x1, stats)] {
    up_.add_weight_gradient(du, normal);
  });
  if (reduction) reduction->wait();
  mlp_norm_.backward(dx1, x1, stats, dy);
  return dx1;
}

at::Tensor Block::backward_attention(at::Tensor dx1, const at::Tensor& x, const at::Tensor& stats,
                                     at::Tensor packed, at::Tensor attended, at::Tensor log_sums,
                                     const AttentionShape& shape, WeightWork* later) const {
  output_.add_bias_gradient(dx1);
  now_or_later(later, [this, dx1, attended] { output_.add_weight_gradient(dx1, attended); });
  {
    const at::Tensor attended_gradient = output_.input_gradient(dx1);
    const at::Tensor scratch = at::empty({shape.backward_scratch()}, x.options());
    with_element_type(x, [&](auto zero) {
      using T = decltype(zero);
      attention_backward(shape, data_of<T>(packed), data_of<T>(qkv_.bias.weight),
                         data_of<T>(attended), data_of<T>(attended_gradient), data_of<T>(log_sums),
                         data_of<T>(scratch));
    });
  }
  attended.reset();
  log_sums.reset();

  at::Tensor dx = qkv_.input_gradient(packed);
  const WorkPtr reduction = start_all_reduce(group_, dx, ReduceOp::kSum, "tensor.backward");
  qkv_.add_bias_gradient(packed);
  now_or_later(later,
               [this, packed = std::move(packed), normal = attention_norm_.recompute(x, stats)] {
                 qkv_.add_weight_gradient(packed, normal);
               });
  if (reduction) reduction->wait();
  attention_norm_.backward(dx, x, stats, dx1);
  return dx;
}

}  // namespace

std::unique_ptr<Layer> make_block(const ModelSpec& model, const ParameterViews& parameters,
                                  const TensorParallel& group) {
  return std::make_unique<Block>(model, parameters, group);
}

}  // namespace smp
