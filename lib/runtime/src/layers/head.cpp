#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "layers/parameter_views.h"
#include "smp/plan/check.h"
#include "smp/plan/collective.h"

namespace smp {
namespace {

// Final norm, projection to this rank's part of the vocabulary, cross-entropy. One buffer holds the
// logits, then their exponentials, then the gradient of the loss by the logits. Of 16-bit logits
// the statistics are kept in fp32 instead, and the gradient is made in backward, where the scale of
// the loss is known: 1 / tokens alone would be lost to fp16.
class Head final : public Layer {
 public:
  Head(const ModelSpec& model, const ParameterViews& parameters, const TensorRegion& region)
      : norm_(parameters.norm("norm", model.norm_epsilon)),
        projection_{model.tied_embeddings ? parameters.tied() : parameters.at("weight"),
                    parameters.at("bias")},
        scale_(head_scale(model)),
        vocab_size_(model.vocab_size),
        begin_(part_begin(model.vocab_size, region.degree(), region.rank())),
        region_(region) {
    SMP_CHECK_EQ(projection_.weight.weight.size(0),
                 part_size(vocab_size_, region.degree(), region.rank()));
  }

  std::vector<at::Tensor> forward(const std::vector<at::Tensor>& inputs, const CallContext& call,
                                  Saved* saved) override;
  std::vector<at::Tensor> backward(Saved saved, std::vector<at::Tensor> gradients,
                                   const CallContext& call, WeightWork* later) override;

 private:
  SoftmaxStatistics empty_statistics(const at::Tensor& logits) const;

  Norm norm_;
  Linear projection_;
  double scale_;  // of what is projected
  int64_t vocab_size_, begin_;
  TensorRegion region_;
};

SoftmaxStatistics Head::empty_statistics(const at::Tensor& logits) const {
  return {at::empty({logits.size(0)}, wide_options(logits)),
          at::empty({2, logits.size(0)}, wide_options(logits))};
}

std::vector<at::Tensor> Head::forward(const std::vector<at::Tensor>& inputs,
                                      const CallContext& /*call*/, Saved* saved) {
  const at::Tensor& input = inputs.at(0);
  const at::Tensor& targets = inputs.at(1);
  const at::Tensor x = input.view({targets.numel() / region_.parts(), -1});

  const at::Tensor stats = norm_.empty_stats(x);
  at::Tensor normal = norm_.forward(x, stats);
  if (scale_ != 1) normal.mul_(scale_);
  const at::Tensor logits = projection_.forward(  // [n, vocabulary/t]
      region_.gathered(std::move(normal), "tensor.forward"));
  if (projection_.bias.defined()) logits.add_(projection_.bias.weight);
  SoftmaxStatistics statistics = empty_statistics(logits);
  SoftmaxExchange exchange;
  if (region_.degree() > 1) {
    exchange = [this](const at::Tensor& part, ReduceOp op) {
      region_.all_reduce(part, op, "tensor.loss");
    };
  }
  const double mean = functions_of(logits).softmax_loss(logits, targets, begin_, statistics,
                                                        exchange, saved != nullptr);
  if (saved != nullptr) {
    *saved = {input, stats, logits};
    if (is_narrow(x)) saved->insert(saved->end(), {targets, statistics.maxima, statistics.sums});
  }
  statistics = {};
  return {at::full({}, mean, wide_options(x).device(at::kCPU))};
}

// The logits' gradient is far larger than anything else: the schedules never put this off.
std::vector<at::Tensor> Head::backward(Saved saved, std::vector<at::Tensor> gradients,
                                       const CallContext& /*call*/, WeightWork* /*later*/) {
  const at::Tensor input = std::move(saved[0]);
  const at::Tensor stats = std::move(saved[1]);
  at::Tensor logits_gradient = std::move(saved[2]);
  const at::Tensor x = input.view({input.size(0) * input.size(1), -1});
  double scale = gradients.at(0).item().toDouble();
  if (is_narrow(x)) {
    functions_of(x).softmax_gradient(logits_gradient, saved[3], begin_, {saved[4], saved[5]},
                                     scale);
  } else if (projection_.bias.defined()) {
    logits_gradient.mul_(scale);
  }
  if (is_narrow(x) || projection_.bias.defined()) scale = 1;
  saved.clear();

  TensorRegion::Sum sum = region_.start_sum(
      projection_.input_gradient(logits_gradient, scale * scale_), "tensor.backward");
  projection_.add_bias_gradient(logits_gradient);
  projection_.add_weight_gradient(logits_gradient,
                                  region_.gathered(norm_.recompute(x, stats), "tensor.backward"),
                                  scale * scale_);
  logits_gradient.reset();
  at::Tensor dx = sum.wait();
  norm_.backward(dx, x, stats, {}, region_);
  return {dx.view(input.sizes()), at::Tensor()};
}

}  // namespace

std::unique_ptr<Layer> make_head(const ModelSpec& model, const ParameterViews& parameters,
                                 const TensorParallel& group) {
  return std::make_unique<Head>(model, parameters, TensorRegion(group, group.kinds.embedding));
}

}  // namespace smp
