#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>

#include "layers/parameter_views.h"
#include "smp/plan/check.h"
#include "smp/plan/collective.h"

namespace smp {
namespace {

// Rows whose softmax is worked through at once, so that they stay in cache between the passes.
constexpr int64_t kRowsAtOnce = 8;

// Final norm, projection to this rank's part of the vocabulary, cross-entropy. One buffer holds the
// logits, then their exponentials, then the gradient of the loss by the logits.
class Head final : public Layer {
 public:
  Head(const ModelSpec& model, const ParameterViews& parameters, const TensorParallel& group)
      : norm_(parameters.norm("norm", model.norm_epsilon)),
        projection_{model.tied_embeddings ? parameters.tied() : parameters.at("weight"), {}},
        vocab_size_(model.vocab_size),
        begin_(part_begin(model.vocab_size, group.degree, group.rank)),
        group_(group) {
    SMP_CHECK_EQ(projection_.weight.weight.size(0),
                 part_size(vocab_size_, group.degree, group.rank));
  }

  std::vector<at::Tensor> forward(const std::vector<at::Tensor>& inputs, Saved* saved) override;
  std::vector<at::Tensor> backward(Saved saved, std::vector<at::Tensor> gradients,
                                   WeightWork* later) override;

 private:
  // Mean loss; with `keep`, logits become its gradient.
  template <typename T>
  double loss(const at::Tensor& logits, const int64_t* targets, bool keep) const;

  Norm norm_;
  Linear projection_;
  int64_t vocab_size_, begin_;
  TensorParallel group_;
};

template <typename T>
double Head::loss(const at::Tensor& logits, const int64_t* targets, bool keep) const {
  const int64_t rows = logits.size(0), cols = logits.size(1);
  at::Tensor maxima_tensor = at::empty({rows}, logits.options());
  at::Tensor sums_tensor = at::empty({2 * rows}, logits.options());  // then the targets' logits
  T* x = data_of<T>(logits);
  T* maxima = data_of<T>(maxima_tensor);
  T* sums = data_of<T>(sums_tensor);
  T* target_logits = sums + rows;
  const T scale = T(1) / T(rows);
  // Alone, each few rows go through all steps; a group exchanges between the steps.
  const int64_t step = group_.degree == 1 ? kRowsAtOnce : std::max<int64_t>(rows, 1);
  for (int64_t r = 0; r < rows; r += step) {
    const int64_t n = std::min(step, rows - r);
    row_maxima(n, cols, x + r * cols, maxima + r);
    all_reduce(group_, maxima_tensor, ReduceOp::kMax, "tensor.loss");
    exponentials(n, cols, begin_, targets + r, maxima + r, x + r * cols, sums + r,
                 target_logits + r);
    all_reduce(group_, sums_tensor, ReduceOp::kSum, "tensor.loss");
    if (keep) softmax_gradient(n, cols, begin_, targets + r, sums + r, scale, x + r * cols);
  }
  double total = 0;
  for (int64_t r = 0; r < rows; ++r) {
    total += std::log(static_cast<double>(sums[r])) - static_cast<double>(target_logits[r]);
  }
  return total / static_cast<double>(rows);
}

std::vector<at::Tensor> Head::forward(const std::vector<at::Tensor>& inputs, Saved* saved) {
  const at::Tensor& input = inputs.at(0);
  const at::Tensor& targets = inputs.at(1);
  const int64_t* ids = targets.const_data_ptr<int64_t>();
  for (int64_t n = 0; n < targets.numel(); ++n) SMP_CHECK(ids[n] >= 0 && ids[n] < vocab_size_);
  const at::Tensor x = input.view({targets.numel(), -1});  // [n, h]

  const at::Tensor stats = norm_.empty_stats(x);
  const at::Tensor logits = projection_.forward(norm_.forward(x, stats));  // [n, vocabulary/t]
  double mean = 0;
  with_element_type(x,
                    [&](auto zero) { mean = loss<decltype(zero)>(logits, ids, saved != nullptr); });
  if (saved != nullptr) *saved = {input, stats, logits};
  return {at::full({}, mean, x.options())};
}

// The logits' gradient is far larger than anything else: the schedules never put this off.
std::vector<at::Tensor> Head::backward(Saved saved, std::vector<at::Tensor> gradients,
                                       WeightWork* /*later*/) {
  const at::Tensor input = std::move(saved[0]);
  const at::Tensor stats = std::move(saved[1]);
  at::Tensor logits_gradient = std::move(saved[2]);
  const at::Tensor x = input.view({input.size(0) * input.size(1), -1});
  const double scale = gradients.at(0).item().toDouble();

  at::Tensor dx = projection_.input_gradient(logits_gradient, scale);
  const WorkPtr reduction = start_all_reduce(group_, dx, ReduceOp::kSum, "tensor.backward");
  projection_.add_weight_gradient(logits_gradient, norm_.recompute(x, stats), scale);
  logits_gradient.reset();
  if (reduction) reduction->wait();
  norm_.backward(dx, x, stats, {});
  return {dx.view(input.sizes()), at::Tensor()};
}

}  // namespace

std::unique_ptr<Layer> make_head(const ModelSpec& model, const ParameterViews& parameters,
                                 const TensorParallel& group) {
  return std::make_unique<Head>(model, parameters, group);
}

}  // namespace smp
