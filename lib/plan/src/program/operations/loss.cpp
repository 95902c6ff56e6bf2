#include <algorithm>

#include "program/operations/rules.h"

namespace smp::program {
namespace {

// Rows of 16-bit logits that are widened at a time.
constexpr int64_t kRowsAtOnce = 8;

int64_t widened_rows(const PlacedOperation& p) {
  const ValueId logits = p.operation.in(0);
  const DType dtype = p.dtype(logits);
  if (!is_narrow(dtype)) return 0;
  return wide_bytes(dtype) * std::min(p.rows(logits), kRowsAtOnce) * p.cols(logits);
}

// Wide logits need their statistics only while the loss is computed: maximum, sum and the target's
// logit of each row. They are gone when the loss is written.
int64_t loss_scratch(const PlacedOperation& p) {
  const ValueId logits = p.operation.in(0);
  const int64_t wide = wide_bytes(p.dtype(logits));
  if (is_narrow(p.dtype(logits))) return std::max<int64_t>(0, widened_rows(p) - wide);
  return wide * 3 * p.rows(logits) - wide;
}

}  // namespace

const OperationRules kSoftmaxLossRules = {.name = "softmax loss",
                                          .kernel = KernelClass::kRows,
                                          .inputs = "logits targets",
                                          .outputs = "loss gradient? maxima? sums? kept?",
                                          .scratch_bytes = loss_scratch};
const OperationRules kSoftmaxGradientRules = {
    .name = "softmax gradient",
    .kernel = KernelClass::kRows,
    .inputs = "logits? targets maxima? sums? factor kept?",
    .outputs = "gradient",
    .scratch_bytes = widened_rows};

}  // namespace smp::program
