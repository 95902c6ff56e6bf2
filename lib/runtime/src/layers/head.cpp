#include "layers/cross_entropy.h"
#include "layers/parameter_views.h"
#include "ledger/tensor_factories.h"
#include "smp/plan/base/check.h"
#include "smp/plan/mesh/collective.h"

namespace smp::layers {
namespace {

// Final norm, in an encoder_decoder with dropout behind it, projection to this rank's part of the
// vocabulary, cross-entropy.
class Head final : public Layer {
 public:
  Head(const ModelSpec& model, const ParameterViews& parameters,
       const kernels::TensorRegion& region)
      : layer_(parameters.layer()),
        hidden_dropout_(model.stack == Stack::kEncoderDecoder ? model.hidden_dropout : 0),
        norm_(parameters.norm("norm", model.norm_epsilon)),
        projection_{model.tied_embeddings ? parameters.tied() : parameters.at("weight"),
                    parameters.at("bias")},
        scale_(model::head_scale(model)),
        loss_(mesh::part_begin(model.vocab_size, region.degree(), region.rank()), region),
        region_(region) {
    SMP_CHECK_EQ(projection_.weight.weight.size(0),
                 mesh::part_size(model.vocab_size, region.degree(), region.rank()));
  }

  std::vector<at::Tensor> forward(const std::vector<at::Tensor>& inputs,
                                  const kernels::CallContext& call, Saved* saved) override;
  std::vector<at::Tensor> backward(Saved saved, std::vector<at::Tensor> gradients,
                                   const kernels::CallContext& call,
                                   DeferredWeightGradients* deferred) override;

 private:
  // Of the norm's result, for this rank's of `batch` samples.
  kernels::Dropout dropout(const at::Tensor& x, int64_t batch,
                           const kernels::CallContext& call) const {
    const int64_t tokens = x.size(0) * region_.parts();
    return region_.of_own_tokens(kernels::dropout_of(hidden_dropout_, call, layer_,
                                                     kernels::DropoutSite::kOutput, tokens / batch),
                                 tokens);
  }

  int64_t layer_;
  double hidden_dropout_;
  kernels::Norm norm_;
  kernels::Linear projection_;
  double scale_;  // of what is projected
  CrossEntropy loss_;
  kernels::TensorRegion region_;
};

std::vector<at::Tensor> Head::forward(const std::vector<at::Tensor>& inputs,
                                      const kernels::CallContext& call, Saved* saved) {
  const at::Tensor& input = inputs.at(0);
  const at::Tensor& targets = inputs.at(1);
  const at::Tensor x = input.view({targets.numel() / region_.parts(), -1});

  const at::Tensor stats = norm_.empty_stats(x);
  at::Tensor normal = norm_.forward(x, stats);
  kernels::drop_in_place(dropout(x, input.size(0), call), normal);
  if (scale_ != 1) normal.mul_(scale_);
  normal = region_.gathered(std::move(normal), "tensor.forward");
  const at::Tensor logits =  // [n, vocabulary/t]
      kernels::functions_of(normal).logits(normal, projection_.weight.weight);
  normal.reset();
  if (projection_.bias.defined()) logits.add_(projection_.bias.weight);
  if (saved != nullptr) *saved = {input, stats};
  kernels::SoftmaxStatistics statistics;
  const double mean = loss_.forward(logits, targets, statistics, saved);
  statistics = {};
  return {ledger::full_tensor({}, mean, kernels::wide_options(x).device(at::kCPU))};
}

// Schedules never defer the head's weight gradient: the logits' gradient is by far the largest
// tensor.
std::vector<at::Tensor> Head::backward(Saved saved, std::vector<at::Tensor> gradients,
                                       const kernels::CallContext& call,
                                       DeferredWeightGradients* /*deferred*/) {
  const at::Tensor input = std::move(saved[0]);
  const at::Tensor stats = std::move(saved[1]);
  const at::Tensor x = input.view({input.size(0) * input.size(1), -1});
  double scale = gradients.at(0).item().toDouble();
  at::Tensor logits_gradient = loss_.gradient(saved, scale);
  if (projection_.bias.defined() && scale != 1) {
    logits_gradient.mul_(scale);
    scale = 1;
  }
  saved.clear();

  kernels::TensorRegion::Sum sum = region_.start_sum(
      projection_.input_gradient(logits_gradient, scale * scale_), "tensor.backward");
  projection_.add_bias_gradient(logits_gradient);
  const kernels::Dropout drops = dropout(x, input.size(0), call);
  {
    at::Tensor normal = norm_.recompute(x, stats);
    kernels::drop_in_place(drops, normal);
    projection_.add_weight_gradient(
        logits_gradient, region_.gathered(std::move(normal), "tensor.backward"), scale * scale_);
  }
  logits_gradient.reset();
  at::Tensor dx = sum.wait();
  kernels::drop_in_place(drops, dx);
  norm_.backward(dx, x, stats, {}, region_);
  return {dx.view(input.sizes()), at::Tensor()};
}

}  // namespace

std::unique_ptr<Layer> make_head(const ModelSpec& model, const ParameterViews& parameters,
                                 const kernels::TensorParallel& group) {
  return std::make_unique<Head>(model, parameters,
                                kernels::TensorRegion(group, group.kinds.embedding));
}

}  // namespace smp::layers
