#include "smp/runtime/training/measure_steps.h"

#include <doctest/doctest.h>

#include "smp/plan/text/json.h"

using namespace smp;
using namespace smp::training;

TEST_CASE("measure_host: steps of each width on as many ranks as asked, as JSON") {
  const MeasuredHost measured = measure_host(3);  // more than CPUs, perhaps
  CHECK(!measured.instruction_set.empty());
  CHECK(measured.matmul_flops_per_s > 0);
  CHECK(measured.memory_bytes_per_s > 0);
  const std::string printed = measured_json(measured);
  const size_t first = printed.find('\n');
  const text::Json json = text::Json::parse(printed.substr(0, first));
  REQUIRE(measured.steps.size() == 3);
  int64_t width = 64;
  for (size_t i = 0; i < measured.steps.size(); ++i) {
    const MeasuredSteps& steps = measured.steps[i];
    CHECK(steps.ranks == 3);
    CHECK(steps.hidden_size == (width *= 2));
    CHECK(steps.microbatch_s > 0);
    CHECK(json["steps"][i]["hidden_size"] == steps.hidden_size);
    CHECK(json["steps"][i]["microbatch_s"].get<double>() == steps.microbatch_s);
  }
  const auto products = runinfo::read_product_times(printed.substr(first + 1));
  REQUIRE(products.size() == measured.products.size());
  for (size_t i = 0; i < products.size(); ++i)
    CHECK((products[i].product == measured.products[i].product));
}
