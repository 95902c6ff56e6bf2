#include "smp/plan/program/matrix_products.h"

#include <algorithm>
#include <optional>
#include <variant>

namespace smp::program {
namespace {

std::optional<ProductKind> product_kind_of(OperationKind kind) {
  switch (kind) {
    case OperationKind::kProduct:
    case OperationKind::kLogits:
    case OperationKind::kConvolution:
    case OperationKind::kRouterScores:
    case OperationKind::kExpertProduct: return ProductKind::kForward;
    case OperationKind::kInputGradient:
    case OperationKind::kConvolutionInputGradient:
    case OperationKind::kRouterInputGradient:
    case OperationKind::kExpertInputGradient: return ProductKind::kInputGradient;
    case OperationKind::kWeightGradient:
    case OperationKind::kConvolutionWeightGradient:
    case OperationKind::kRouterWeightGradient:
    case OperationKind::kExpertWeightGradient: return ProductKind::kWeightGradient;
    default: return std::nullopt;
  }
}

SizedProduct product_of(const PlacedOperation& placed, ProductKind kind) {
  const Operation& operation = placed.operation;
  const ValueId matrix =
      kind == ProductKind::kWeightGradient ? operation.gradients.at(0) : operation.in(1);
  const ValueId out = kind == ProductKind::kForward ? operation.out(0) : operation.in(0);
  const auto* experts = std::get_if<ExpertAttributes>(&operation.attributes);
  const int64_t matrices = experts != nullptr ? experts->count : 1;
  const int64_t width = placed.rows(matrix) / matrices;
  const int64_t rows = placed.elements(out) / width / matrices;
  return {{kind, width, placed.cols(matrix)}, std::max<int64_t>(1, rows)};
}

}  // namespace

std::string_view name_of(ProductKind kind) {
  switch (kind) {
    case ProductKind::kForward: return "forward";
    case ProductKind::kInputGradient: return "input gradient";
    case ProductKind::kWeightGradient: break;
  }
  return "weight gradient";
}

std::vector<SizedProduct> matrix_products(const LayerProgram& program) {
  std::vector<SizedProduct> products;
  for (const std::vector<Operation>& section : program.sections) {
    for (const Operation& operation : section) {
      if (const auto kind = product_kind_of(operation.kind))
        products.push_back(product_of({program, operation}, *kind));
    }
  }
  return products;
}

}  // namespace smp::program
