#include "smp/plan/runinfo/product_times.h"

#include <doctest/doctest.h>

#include "files_and_errors.h"

using namespace smp;
using namespace smp::runinfo;
using program::ProductKind;

TEST_CASE("times of products go through their lines") {
  const std::vector<ProductTimes> times = {
      {{{ProductKind::kForward, 768, 256}, 2048}, 1.25e-3, 1e-3},
      {{{ProductKind::kInputGradient, 7, 1}, 1}, 1e-6, 2e-6},
      {{{ProductKind::kWeightGradient, 50257, 12288}, 65536}, 0.5, 0.25}};
  const std::string lines = lines_of(times);
  CHECK(
      lines.substr(0, lines.find('\n')) ==
      R"({"product":"forward","rows":2048,"out":768,"in":256,"onednn_s":0.00125,"torch_s":0.001})");
  const std::vector<ProductTimes> read = read_product_times(lines);
  REQUIRE(read.size() == times.size());
  for (size_t i = 0; i < times.size(); ++i) {
    CHECK((read[i].product == times[i].product));
    CHECK(read[i].onednn_s == times[i].onednn_s);
    CHECK(read[i].torch_s == times[i].torch_s);
  }
  CHECK(read[0].torch_speed() == doctest::Approx(1.25));
  CHECK(read_product_times("").empty());
}

TEST_CASE("lines that are no product's times are refused") {
  const std::string line = lines_of({{{{ProductKind::kForward, 768, 256}, 2048}, 1e-3, 1e-3}});
  const std::string none = "the measurement has a line that is no product's";
  for (const std::string& text : {line.substr(0, 40), std::string("\n"), std::string("[]\n"),
                                  std::string("{\"product\":\"forward\"}\n")})
    CHECK(error_of([&] { read_product_times(text); }) == none);
  std::string other = line;
  CHECK(error_of([&] { read_product_times(other.replace(12, 7, "sideways")); }) ==
        "the measurement has a product 'sideways'");
  other = line;
  const size_t at = other.find("0.001");
  CHECK(error_of([&] { read_product_times(other.replace(at, 5, "-1")); }) ==
        "the measurement says onednn_s -1: expected a number from 1e-12 to 1e+18");
}
