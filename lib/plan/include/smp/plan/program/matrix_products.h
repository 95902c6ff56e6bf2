#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "smp/plan/program/program.h"

// The products with matrices of which a program's work mostly is. Pure.
namespace smp::program {

// The products with a matrix [out, in].
enum class ProductKind : uint8_t {
  kForward,         // x [rows, in] -> [rows, out]
  kInputGradient,   // dy [rows, out] -> [rows, in]
  kWeightGradient,  // dy and x -> [out, in]; the rows are summed
};
std::string_view name_of(ProductKind kind);  // "forward", "input gradient", "weight gradient"

struct MatrixProduct {
  ProductKind kind = ProductKind::kForward;
  int64_t out = 0, in = 0;
  auto operator<=>(const MatrixProduct&) const = default;
};

struct SizedProduct {
  MatrixProduct matrix;
  int64_t rows = 0;  // of a call, at most
  auto operator<=>(const SizedProduct&) const = default;
};

// Of all sections, in their order. Each expert has a matrix of its own.
std::vector<SizedProduct> matrix_products(const LayerProgram& program);

}  // namespace smp::program
