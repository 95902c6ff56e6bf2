#include "smp/plan/model/operators.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "model/operators/operator_rules.h"
#include "smp/plan/base/errors.h"

namespace smp::model {

const std::vector<OperatorRules>& all_operator_rules() {
  static const std::vector<OperatorRules> kRules = {
      kConv2dRules,  kLinearRules,    kReluRules,      kGeluRules,
      kTanhRules,    kMaxPool2dRules, kAvgPool2dRules, kAdaptiveAvgPool2dRules,
      kFlattenRules, kLayerNormRules, kRmsNormRules,   kDropoutRules};
  return kRules;
}

const OperatorRules& rules_of(OperatorKind kind) {
  return all_operator_rules().at(static_cast<size_t>(kind));
}

std::string to_string(const SampleShape& shape) {
  return fmt::format("{}", fmt::join(shape, " x "));
}

int64_t elements_of(const SampleShape& shape) {
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  return elements;
}

void check_image(const OperatorSpec& spec, const SampleShape& in) {
  if (in.size() == 3) return;
  throw ConfigError(
      fmt::format("{} needs an image (channels x height x width), but its input is {} flat "
                  "features: put it before flatten",
                  rules_of(spec.kind).type, to_string(in)));
}

void check_flat(const OperatorSpec& spec, const SampleShape& in) {
  if (in.size() == 1) return;
  throw ConfigError(
      fmt::format("{} needs flat features, but its input is an image of {}: put flatten before it",
                  rules_of(spec.kind).type, to_string(in)));
}

int64_t windows_along(const OperatorSpec& spec, int64_t size) {
  const int64_t stride = spec.stride == 0 ? spec.kernel : spec.stride;
  const int64_t room = size + 2 * spec.padding - spec.kernel;
  if (room < 0) {
    throw ConfigError(
        fmt::format("kernel ({}) is larger than the image ({}) and its padding (2 x {})",
                    spec.kernel, size, spec.padding));
  }
  return room / stride + 1;
}

std::vector<ParameterSpec> matrix_and_bias(int64_t rows, int64_t cols) {
  const double bound = 1 / std::sqrt(static_cast<double>(cols));
  return {{.name = "weight",
           .rows = rows,
           .cols = cols,
           .init = Init::kNormal,
           .init_std = bound / std::sqrt(3.0),
           .weight_decay = true},
          {.name = "bias", .rows = rows, .is_vector = true, .init = Init::kZeros}};
}

SampleShape input_of(const ModelSpec& model) {
  return {model.input_channels, model.input_height, model.input_width};
}

std::vector<SampleShape> output_shapes(const ModelSpec& model) {
  std::vector<SampleShape> shapes;
  SampleShape in = input_of(model);
  for (const OperatorSpec& spec : model.operators) {
    shapes.push_back(in = rules_of(spec.kind).output(spec, in));
  }
  return shapes;
}

}  // namespace smp::model
