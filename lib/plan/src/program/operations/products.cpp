#include "program/operations/rules.h"

// Products with a weight [out, in]. Column-parallel layers split `out`, row-parallel ones `in`.
namespace smp::program {
namespace {

// x [n, in], weight [out, in] -> [n, out]
double product_flops(const PlacedOperation& p) {
  const ValueId x = p.operation.in(0), weight = p.operation.in(1);
  return 2.0 * static_cast<double>(p.rows(x)) * static_cast<double>(p.elements(weight));
}
int64_t product_bytes(const PlacedOperation& p) {
  const ValueId x = p.operation.in(0), weight = p.operation.in(1);
  return product_scratch(p.dtype(x), p.rows(x), p.cols(x), p.rows(weight));
}

// dy [n, out], weight [out, in] -> [n, in]
int64_t input_gradient_bytes(const PlacedOperation& p) {
  const ValueId dy = p.operation.in(0), weight = p.operation.in(1);
  return product_scratch(p.dtype(dy), p.rows(dy), p.cols(dy), p.cols(weight));
}

// dy [n, out], x [n, in] -> [out, in]
double weight_gradient_flops(const PlacedOperation& p) {
  const ValueId dy = p.operation.in(0), x = p.operation.in(1);
  return 2.0 * static_cast<double>(p.elements(dy)) * static_cast<double>(p.cols(x));
}
int64_t weight_gradient_bytes(const PlacedOperation& p) {
  const ValueId dy = p.operation.in(0), x = p.operation.in(1);
  return weight_gradient_scratch(p.dtype(dy), p.rows(dy), p.cols(dy), p.cols(x));
}

}  // namespace

const OperationRules kProductRules = {.name = "product",
                                      .kernel = KernelClass::kProduct,
                                      .inputs = "x weight",
                                      .outputs = "y",
                                      .flops = product_flops,
                                      .scratch_bytes = product_bytes};
// Rows of the result may begin further apart than they are long.
const OperationRules kLogitsRules = {.name = "logits",
                                     .kernel = KernelClass::kProduct,
                                     .inputs = "x weight",
                                     .outputs = "y",
                                     .flops = product_flops,
                                     .scratch_bytes = product_bytes};
// `factor` is a number of the call.
const OperationRules kInputGradientRules = {.name = "product, d input",
                                            .kernel = KernelClass::kProduct,
                                            .inputs = "dy weight factor?",
                                            .outputs = "dx",
                                            .flops = product_flops,
                                            .scratch_bytes = input_gradient_bytes};
const OperationRules kWeightGradientRules = {.name = "product, d weight",
                                             .kernel = KernelClass::kProduct,
                                             .inputs = "dy x factor?",
                                             .outputs = "product?",
                                             .flops = weight_gradient_flops,
                                             .scratch_bytes = weight_gradient_bytes};
const OperationRules kBiasGradientRules = {
    .name = "d bias", .kernel = KernelClass::kRows, .inputs = "dy", .outputs = ""};

}  // namespace smp::program
