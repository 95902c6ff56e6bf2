#include "program/layers/loss.h"

namespace smp::program {

ValueId CrossEntropy::forward(ValueId logits, ValueId targets) {
  targets_ = targets;
  const Dim rows = builder_.value(logits).shape[0];
  const ValueId loss = builder_.made("loss", {}, builder_.wide_dtype());
  std::vector<ValueId> outputs{loss};
  if (builder_.is_narrow()) {
    logits_ = logits;
    maxima_ = builder_.made("maxima", {rows}, builder_.wide_dtype());
    sums_ = builder_.made("sums", {{2, ""}, rows}, builder_.wide_dtype());
    outputs.insert(outputs.end(), {kNoValue, maxima_, sums_});
  } else {
    logits_ = builder_.over("d logits of the mean", logits);
    outputs.push_back(logits_);
  }
  builder_.add(OperationKind::kSoftmaxLoss, {logits, targets}, outputs, attributes_);
  return loss;
}

ValueId CrossEntropy::backward(ValueId loss_gradient, ValueId& factor) {
  factor = loss_gradient;
  if (!builder_.is_narrow()) return logits_;
  const ValueId gradient = builder_.over("d logits", logits_);
  builder_.add(OperationKind::kSoftmaxGradient, {logits_, targets_, maxima_, sums_, loss_gradient},
               {gradient}, attributes_);
  factor = kNoValue;
  return gradient;
}

ValueId scaled(ProgramBuilder& builder, ValueId x, ValueId factor, double scale) {
  const ValueId y = builder.over(builder.value(x).name, x);
  builder.add(OperationKind::kScale, {x, factor}, {y}, ProductAttributes{scale});
  return y;
}

}  // namespace smp::program
