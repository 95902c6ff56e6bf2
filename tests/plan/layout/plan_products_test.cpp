#include "smp/plan/layout/plan_products.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "plan/plan_samples.h"

using namespace smp;
using namespace smp::layout;

namespace {

using Lines = std::vector<std::string>;

Lines products_of(const Plan& plan) {
  Lines lines;
  for (const auto& [matrix, rows] : plan_products(plan))
    lines.push_back(
        fmt::format("{} {}x{}, {} rows", name_of(matrix.kind), matrix.out, matrix.in, rows));
  return lines;
}

// The same matrices for each kind of product.
Lines all_kinds(const Lines& matrices) {
  Lines lines;
  for (const std::string kind : {"forward ", "input gradient ", "weight gradient "})
    for (const std::string& matrix : matrices) lines.push_back(kind + matrix);
  return lines;
}

}  // namespace

TEST_CASE("a GPT's layers multiply by five matrices, whatever their number") {
  CHECK(products_of(sample_plan(small_gpt2(), {})) ==
        all_kinds({"48x48, 32 rows", "48x192, 32 rows", "144x48, 32 rows", "192x48, 32 rows",
                   "257x48, 32 rows"}));
}

TEST_CASE("stages have the products of the whole model, tensor ranks those of all of them") {
  const Plan stages = sample_plan(small_gpt2(), {.pipeline = 2, .replica = 2});
  CHECK(products_of(stages) == products_of(sample_plan(small_gpt2(), {})));
  CHECK(products_of(sample_plan(small_gpt2(), {.tensor = 2})) ==
        all_kinds({"48x24, 32 rows", "48x96, 32 rows", "72x48, 32 rows", "96x48, 32 rows",
                   "128x48, 32 rows", "129x48, 32 rows"}));
}

TEST_CASE("an expert has a matrix of its own, of those that lie in one") {
  ModelSpec model = small_llama();
  model.num_experts = 4;
  model.experts_per_token = 2;
  model.expert_ffn_hidden_size = 20;
  const Lines products = products_of(sample_plan(model, {}));
  const auto has = [&](const std::string& line) {
    return std::find(products.begin(), products.end(), line) != products.end();
  };
  CAPTURE(fmt::format("{}", fmt::join(products, "; ")));
  CHECK(has("forward 4x32, 32 rows"));  // the router
  CHECK(has("forward 20x32, 16 rows"));
  CHECK(has("weight gradient 32x20, 16 rows"));
}
