#include <fmt/format.h>

#include "model/operators/operator_rules.h"
#include "smp/plan/base/errors.h"

// Windows of an image, channel by channel: their largest value or their mean.
namespace smp::model {
namespace {

SampleShape output(const OperatorSpec& spec, const SampleShape& in) {
  check_image(spec, in);
  if (2 * spec.padding > spec.kernel) {
    throw ConfigError(fmt::format(
        "padding ({}) is above half of kernel ({}): a window could lie outside the image",
        spec.padding, spec.kernel));
  }
  return {in[0], windows_along(spec, in[1]), windows_along(spec, in[2])};
}

SampleShape adaptive_output(const OperatorSpec& spec, const SampleShape& in) {
  check_image(spec, in);
  return {in[0], spec.out, spec.out};
}

// As in torch, windows lie side by side if no stride is given (0).
const OperatorKey kKernel = {"kernel", &OperatorSpec::kernel};
const OperatorKey kStride = {"stride", &OperatorSpec::stride, 1, kMostKernel, 0};

}  // namespace

const OperatorRules kMaxPool2dRules = {
    .type = "max_pool2d",
    .keys = {kKernel, kStride, {"padding", &OperatorSpec::padding, 0, kMostKernel, 0}},
    .output = output};
const OperatorRules kAvgPool2dRules = {
    .type = "avg_pool2d", .keys = {kKernel, kStride}, .output = output};
const OperatorRules kAdaptiveAvgPool2dRules = {.type = "adaptive_avg_pool2d",
                                               .keys = {{"out", &OperatorSpec::out}},
                                               .output = adaptive_output};

}  // namespace smp::model
