#include <utility>

#include "layers/cross_entropy.h"
#include "layers/operators/operator.h"
#include "ledger/tensor_factories.h"
#include "smp/plan/base/check.h"
#include "smp/plan/data/data_files.h"

namespace smp::layers {
namespace {

OperatorPtr make_operator(const model::PlacedOperator& placed, const ParameterViews& parameters,
                          const kernels::TensorRegion& region, double epsilon) {
  // Each has one name in a layer.
  const kernels::Linear linear{parameters.at("weight"), parameters.at("bias")};
  switch (placed.spec.kind) {
    case OperatorKind::kConv2d:
      return make_convolution(placed, parallel_matrix(placed, linear, region));
    case OperatorKind::kLinear: return make_linear(parallel_matrix(placed, linear, region));
    case OperatorKind::kRelu:
    case OperatorKind::kGelu:
    case OperatorKind::kTanh: return make_activation(placed.spec.kind);
    case OperatorKind::kMaxPool2d: return make_max_pool(placed);
    case OperatorKind::kAvgPool2d:
    case OperatorKind::kAdaptiveAvgPool2d: return make_mean_pool(placed);
    case OperatorKind::kFlatten: return make_flatten();
    case OperatorKind::kDropout: return make_dropout(placed, region);
    case OperatorKind::kLayerNorm:
    case OperatorKind::kRmsNorm:
      return make_feature_norm(parameters.norm(std::to_string(placed.index), epsilon));
  }
  check_failed(__FILE__, __LINE__, "unknown operator");
}

// A layer of a list model: its operators in order. The last layer also computes the mean
// cross-entropy of the batch.
class OperatorList final : public Layer {
 public:
  OperatorList(const ModelSpec& model, const model::LayerSpec& layer,
               const ParameterViews& parameters, const kernels::TensorRegion& region)
      : is_first_(layer.index == 0), makes_loss_(model::makes_loss(layer.kind)) {
    const model::TensorPlace place{region.degree(), region.rank()};
    const std::vector<model::PlacedOperator> all = model::operators_of(model, layer, place);
    const model::ChannelCut& logits = all.back().out_cut;
    if (logits.is_cut()) loss_ = CrossEntropy(logits.begin(place), region);
    bool reads_batch = is_first_;  // or a view of it
    for (const model::PlacedOperator& placed : all) {
      if (placed.gathers && place.degree > 1) {
        operators_.push_back(make_gather(placed.in_cut, region));
        wants_gradient_.push_back(true);
      }
      operators_.push_back(make_operator(placed, parameters, region, model.norm_epsilon));
      wants_gradient_.push_back(!reads_batch);
      reads_batch = reads_batch && placed.spec.kind == OperatorKind::kFlatten;
    }
  }

  std::vector<at::Tensor> forward(const std::vector<at::Tensor>& inputs,
                                  const kernels::CallContext& call, Saved* saved) override {
    Saved kept;
    at::Tensor x = inputs.at(0);
    for (const OperatorPtr& one : operators_) {
      const bool is_own = x.data_ptr() != inputs[0].data_ptr();
      x = one->forward(x, is_own, call, kept);
    }
    std::vector<at::Tensor> outputs;
    if (makes_loss_) {
      outputs = loss(x, inputs.at(1), saved == nullptr ? nullptr : &kept);
    } else {
      outputs = {std::move(x)};
    }
    if (saved != nullptr) *saved = std::move(kept);
    return outputs;
  }

  std::vector<at::Tensor> backward(Saved saved, std::vector<at::Tensor> gradients,
                                   const kernels::CallContext& call,
                                   DeferredWeightGradients* deferred) override {
    at::Tensor gradient = std::move(gradients.at(0)).contiguous();
    gradients.clear();
    if (makes_loss_) {
      double scale = gradient.item().toDouble();
      gradient.reset();
      gradient = loss_.gradient(saved, scale);
      if (scale != 1) gradient.mul_(scale);
      deferred = nullptr;  // as every head: the schedules never put it off
    }
    for (size_t i = operators_.size(); i-- > 0;) {
      const size_t count = operators_[i]->kept();
      Saved kept(std::make_move_iterator(saved.end() - static_cast<std::ptrdiff_t>(count)),
                 std::make_move_iterator(saved.end()));
      saved.resize(saved.size() - count);
      gradient = operators_[i]->backward(std::move(kept), std::move(gradient), wants_gradient_[i],
                                         call, deferred);
    }
    std::vector<at::Tensor> of_inputs;
    of_inputs.push_back(is_first_ ? at::Tensor() : std::move(gradient));
    if (makes_loss_) of_inputs.emplace_back();
    return of_inputs;
  }

 private:
  // The mean loss, and for evaluations the number of samples whose label has the largest logit.
  std::vector<at::Tensor> loss(const at::Tensor& logits, const at::Tensor& labels,
                               Saved* kept) const {
    kernels::SoftmaxStatistics statistics;
    const double mean = loss_.forward(logits, labels, statistics, kept);
    const double correct = kept == nullptr ? correct_ones(statistics, labels) : 0;
    statistics = {};
    std::vector<at::Tensor> outputs = {
        ledger::full_tensor({}, mean, kernels::wide_options(logits))};
    if (kept == nullptr)
      outputs.push_back(ledger::full_tensor({}, correct, kernels::wide_options(logits)));
    return outputs;
  }

  static double correct_ones(const kernels::SoftmaxStatistics& statistics,
                             const at::Tensor& labels) {
    const int64_t rows = labels.numel();
    const int64_t* targets = labels.const_data_ptr<int64_t>();
    double correct = 0;
    kernels::with_element_type(statistics.sums, [&](auto zero) {
      const auto* target_logits = kernels::data_of<decltype(zero)>(statistics.sums) + rows;
      for (int64_t r = 0; r < rows; ++r) {
        correct += targets[r] != data::kNoTarget && target_logits[r] == 0 ? 1 : 0;
      }
    });
    return correct;
  }

  const bool is_first_, makes_loss_;
  CrossEntropy loss_{0, kernels::TensorRegion()};
  std::vector<OperatorPtr> operators_;
  std::vector<bool> wants_gradient_;  // of what each reads; the batch needs none
};

}  // namespace

std::unique_ptr<Layer> make_operator_list(const ModelSpec& model, const model::LayerSpec& layer,
                                          const ParameterViews& parameters,
                                          const kernels::TensorParallel& group) {
  return std::make_unique<OperatorList>(model, layer, parameters,
                                        kernels::TensorRegion(group, true));
}

}  // namespace smp::layers
