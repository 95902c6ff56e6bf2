#include <fmt/format.h>

#include "model/operators/operator_rules.h"
#include "smp/plan/base/errors.h"

// Windows of an image, channel by channel: their largest value or their mean. A largest value's
// place is kept in 32 bits.
namespace smp::model {
namespace {

constexpr int64_t kPlaceBytes = 4;

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

// For a channel of a sample. Windows overlap, so an element's gradient is a sum.
int64_t plane_sums(const OperatorCall& call) {
  return sums_bytes(call.dtype, call.in[1] * call.in[2]);
}

OperatorMemory max_memory(const OperatorCall& call) {
  return {.kept_bytes = kPlaceBytes * call.batch * elements_of(call.out),
          .gradient_scratch_bytes = plane_sums(call)};
}

OperatorMemory mean_memory(const OperatorCall& call) {
  return {.gradient_scratch_bytes = plane_sums(call)};
}

// As in torch, windows lie side by side if no stride is given (0).
const OperatorKey kKernel = {"kernel", &OperatorSpec::kernel};
const OperatorKey kStride = {"stride", &OperatorSpec::stride, 1, kMostKernel, 0};

}  // namespace

const OperatorRules kMaxPool2dRules = {
    .type = "max_pool2d",
    .keys = {kKernel, kStride, {"padding", &OperatorSpec::padding, 0, kMostKernel, 0}},
    .output = output,
    .memory = max_memory};
const OperatorRules kAvgPool2dRules = {
    .type = "avg_pool2d", .keys = {kKernel, kStride}, .output = output, .memory = mean_memory};
const OperatorRules kAdaptiveAvgPool2dRules = {.type = "adaptive_avg_pool2d",
                                               .keys = {{"out", &OperatorSpec::out}},
                                               .output = adaptive_output,
                                               .memory = mean_memory};

}  // namespace smp::model
