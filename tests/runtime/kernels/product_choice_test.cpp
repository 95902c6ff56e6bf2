#include "kernels/product_choice.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <doctest/doctest.h>

#include <array>

#include "kernels/cpu_functions.h"
#include "runtime/layers_support.h"
#include "tolerances.h"

using namespace smp;
using namespace smp::kernels;
using program::MatrixProduct;
using program::ProductKind;

namespace {

// Numbers below 1 in rows that begin `stride` apart.
at::Tensor arbitrary(int64_t rows, int64_t cols, int64_t stride) {
  return at::arange(rows * stride, at::kDouble)
      .square_()
      .sin_()
      .to(at::kFloat)
      .view({rows, stride})
      .narrow(1, 0, cols);
}
at::Tensor arbitrary(int64_t rows, int64_t cols) { return arbitrary(rows, cols, cols); }

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return a.to(at::kDouble).sub(b.to(at::kDouble)).abs().max().item().toDouble();
}

// For the test's time all products are oneDNN's again behind it.
struct ChosenHere {
  explicit ChosenHere(ProductChoice choice) { choose_products(std::move(choice)); }
  ~ChosenHere() { choose_products({}); }
};

}  // namespace

TEST_CASE("products go where the table says, and to oneDNN where it says nothing") {
  const MatrixProduct forward{ProductKind::kForward, 768, 256};
  const MatrixProduct backward{ProductKind::kInputGradient, 768, 256};
  const MatrixProduct weights{ProductKind::kWeightGradient, 256, 768};
  const ProductLibrary usual =
      has_onednn_product() ? ProductLibrary::kOnednn : ProductLibrary::kTorch;
  CHECK(library_of(forward) == usual);
  {
    const ChosenHere chosen({.by_torch = {forward, weights}});
    CHECK(library_of(forward) == ProductLibrary::kTorch);
    CHECK(library_of(weights) == ProductLibrary::kTorch);
    CHECK(library_of(backward) == usual);
    CHECK(library_of({ProductKind::kForward, 256, 768}) == usual);
  }
  {
    const ChosenHere chosen({.otherwise = ProductLibrary::kTorch});
    CHECK(library_of(backward) == ProductLibrary::kTorch);
  }
  CHECK(library_of(forward) == usual);
}

TEST_CASE("torch's own library gets what is faster by a tenth or more") {
  const std::vector<program::SizedProduct> products = {{{ProductKind::kForward, 1, 1}, 8},
                                                       {{ProductKind::kForward, 1, 2}, 8},
                                                       {{ProductKind::kInputGradient, 1, 1}, 8},
                                                       {{ProductKind::kWeightGradient, 1, 1}, 8}};
  const ProductChoice choice = choice_of(products, {1.24, 1.25, 0, 3});
  CHECK(choice.otherwise == ProductLibrary::kOnednn);
  REQUIRE(choice.by_torch.size() == 2);
  CHECK((choice.by_torch[0] == products[1].matrix));
  CHECK((choice.by_torch[1] == products[3].matrix));
}

TEST_CASE("both libraries make the same products, but for rounding") {
  if (!has_onednn_product()) return;
  at::set_num_threads(1);
  const at::NoGradGuard no_grad;
  constexpr auto kOnednn = ProductLibrary::kOnednn, kTorch = ProductLibrary::kTorch;
  for (const auto& [rows, out, in] : std::vector<std::array<int64_t, 3>>{
           {1, 1, 1}, {7, 5, 3}, {3, 1, 64}, {33, 131, 65}, {64, 48, 257}, {130, 257, 48}}) {
    CAPTURE(rows);
    CAPTURE(out);
    CAPTURE(in);
    const at::Tensor x = arbitrary(rows, in), matrix = arbitrary(out, in);
    const at::Tensor dy = arbitrary(rows, out, out + 3);  // as a part of the logits' gradient
    const auto tolerated = [](int64_t terms) {
      return tolerance::kProductF32 * static_cast<double>(terms + 1);
    };
    CHECK(largest_difference(cpu_product_by(kOnednn, x, matrix),
                             cpu_product_by(kTorch, x, matrix)) <= tolerated(in));
    CHECK(largest_difference(cpu_product_by(kOnednn, dy, matrix.t()),
                             cpu_product_by(kTorch, dy, matrix.t())) <= tolerated(out));
    at::Tensor ours = at::ones({out, in}), theirs = at::ones({out, in});
    cpu_add_product_by(kOnednn, dy, x, 0.5, ours);
    cpu_add_product_by(kTorch, dy, x, 0.5, theirs);
    CHECK(largest_difference(ours, theirs) <= tolerated(rows));
  }
}

// What a layer calls finds the entry of its own matrix, and not that of the transposed one.
TEST_CASE("layers' calls look up the matrix that they multiply by") {
  if (!has_onednn_product()) return;
  at::set_num_threads(1);
  const at::NoGradGuard no_grad;
  constexpr int64_t kRows = 96, kOut = 130, kIn = 257;
  const at::Tensor x = arbitrary(kRows, kIn), dy = arbitrary(kRows, kOut);
  const at::Tensor matrix = arbitrary(kOut, kIn);
  const auto made = [&] {
    at::Tensor gradient = at::ones({kOut, kIn});
    cpu_add_product(dy, x, 1, gradient);
    return std::vector<at::Tensor>{cpu_product(x, matrix), cpu_product(dy, matrix.t()), gradient};
  };
  const auto made_by = [&](ProductLibrary library) {
    at::Tensor gradient = at::ones({kOut, kIn});
    cpu_add_product_by(library, dy, x, 1, gradient);
    return std::vector<at::Tensor>{cpu_product_by(library, x, matrix),
                                   cpu_product_by(library, dy, matrix.t()), gradient};
  };
  const auto ours = made_by(ProductLibrary::kOnednn), theirs = made_by(ProductLibrary::kTorch);
  const ProductKind kinds[] = {ProductKind::kForward, ProductKind::kInputGradient,
                               ProductKind::kWeightGradient};
  for (size_t chosen = 0; chosen < std::size(kinds); ++chosen) {
    const ChosenHere here({.by_torch = {{kinds[chosen], kOut, kIn}}});
    const std::vector<at::Tensor> all = made();
    for (size_t i = 0; i < all.size(); ++i) CHECK(all[i].equal(i == chosen ? theirs[i] : ours[i]));
  }
}
