#include "smp/plan/runinfo/product_times.h"

#include <fmt/format.h>

#include <algorithm>

#include "smp/plan/base/errors.h"
#include "smp/plan/text/json.h"

namespace smp::runinfo {
namespace {

constexpr double kLeastSeconds = 1e-12, kMostSeconds = 1e18;
constexpr double kMostSize = 1e12;  // of a side of a matrix

program::ProductKind product_kind_named(const std::string& name) {
  for (const auto kind : {program::ProductKind::kForward, program::ProductKind::kInputGradient,
                          program::ProductKind::kWeightGradient}) {
    if (name_of(kind) == name) return kind;
  }
  throw ConfigError(fmt::format("the measurement has a product '{}'", name));
}

double number_in(const text::Json& json, const char* key, double least, double most) {
  const double value = json.at(key).get<double>();
  if (value >= least && value <= most) return value;
  throw ConfigError(fmt::format("the measurement says {} {}: expected a number from {} to {}", key,
                                value, least, most));
}
double seconds_in(const text::Json& json, const char* key) {
  return number_in(json, key, kLeastSeconds, kMostSeconds);
}
int64_t size_in(const text::Json& json, const char* key) {
  return static_cast<int64_t>(number_in(json, key, 1, kMostSize));
}

}  // namespace

std::string lines_of(const std::vector<ProductTimes>& times) {
  std::string lines;
  for (const auto& [product, onednn_s, torch_s] : times) {
    const text::OrderedJson json = {{"product", name_of(product.matrix.kind)},
                                    {"rows", product.rows},
                                    {"out", product.matrix.out},
                                    {"in", product.matrix.in},
                                    {"onednn_s", onednn_s},
                                    {"torch_s", torch_s}};
    lines += json.dump() + "\n";
  }
  return lines;
}

std::vector<ProductTimes> read_product_times(std::string_view lines) {
  std::vector<ProductTimes> times;
  while (!lines.empty()) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    const std::string line(lines.substr(0, end));
    lines.remove_prefix(std::min(end + 1, lines.size()));
    try {
      const text::Json json = text::Json::parse(line);
      const program::MatrixProduct matrix{product_kind_named(json.at("product").get<std::string>()),
                                          size_in(json, "out"), size_in(json, "in")};
      times.push_back({{matrix, size_in(json, "rows")},
                       seconds_in(json, "onednn_s"),
                       seconds_in(json, "torch_s")});
    } catch (const text::Json::exception&) {
      throw ConfigError("the measurement has a line that is no product's");
    }
  }
  return times;
}

}  // namespace smp::runinfo
