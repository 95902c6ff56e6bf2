#include "layers/cross_entropy.h"

#include <utility>

#include "ledger/tensor_factories.h"

namespace smp::layers {

double CrossEntropy::forward(const at::Tensor& logits, const at::Tensor& targets,
                             kernels::SoftmaxStatistics& statistics, Saved* saved) const {
  statistics = {ledger::empty_tensor({logits.size(0)}, kernels::wide_options(logits)),
                ledger::empty_tensor({2, logits.size(0)}, kernels::wide_options(logits))};
  kernels::SoftmaxExchange exchange;
  if (region_.degree() > 1) {
    exchange = [this](const at::Tensor& part, comm::ReduceOp op) {
      region_.all_reduce(part, op, "tensor.loss");
    };
  }
  const double mean = kernels::functions_of(logits).softmax_loss(
      logits, targets, begin_, statistics, exchange, saved != nullptr);
  if (saved == nullptr) return mean;
  if (kernels::is_narrow(logits)) {
    saved->insert(saved->end(), {targets, statistics.maxima, statistics.sums});
  }
  saved->push_back(logits);
  return mean;
}

at::Tensor CrossEntropy::gradient(Saved& saved, double& scale) const {
  const auto take = [&] {
    at::Tensor last = std::move(saved.back());
    saved.pop_back();
    return last;
  };
  at::Tensor logits = take();
  if (!kernels::is_narrow(logits)) return logits;
  const at::Tensor sums = take(), maxima = take(), targets = take();
  kernels::functions_of(logits).softmax_gradient(logits, targets, begin_, {maxima, sums}, scale);
  scale = 1;
  return logits;
}

}  // namespace smp::layers
