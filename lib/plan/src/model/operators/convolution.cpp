#include <algorithm>

#include "model/operators/operator_rules.h"

namespace smp::model {
namespace {

// Rows with which the product of a core is near its best; more only cost memory (measured).
constexpr int64_t kProductRows = 1024;

SampleShape output(const OperatorSpec& spec, const SampleShape& in) {
  check_image(spec, in);
  return {spec.out, windows_along(spec, in[1]), windows_along(spec, in[2])};
}

std::vector<ParameterSpec> parameters(const OperatorSpec& spec, const SampleShape& in) {
  return matrix_and_bias(spec.out, in[0] * spec.kernel * spec.kernel);
}

}  // namespace

int64_t samples_at_once(int64_t batch, int64_t windows) {
  return std::clamp<int64_t>(kProductRows / windows, 1, batch);
}

const OperatorRules kConv2dRules = {
    .type = "conv2d",
    .keys = {{"out", &OperatorSpec::out, 1, kMostOut},
             {"kernel", &OperatorSpec::kernel},
             {"stride", &OperatorSpec::stride, 1, kMostKernel, 1},
             {"padding", &OperatorSpec::padding, 0, kMostKernel, 0}},
    .output = output,
    .parameters = parameters,
    .has_matrix = true};

}  // namespace smp::model
