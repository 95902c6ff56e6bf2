#include <algorithm>

#include "model/alive_bytes.h"
#include "model/operators/operator_rules.h"

// A convolution is a product of patches: the inputs of each output pixel are copied side by side,
// as many samples at once as fill the product, which is then turned from [pixels, channels] to
// [channels, pixels]. All in memory that the plan knows.
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

OperatorMemory memory(const OperatorCall& call) {
  const int64_t windows = call.out[1] * call.out[2];
  const int64_t rows = samples_at_once(call.batch, windows) * windows;
  const int64_t patch = call.in[0] * call.spec.kernel * call.spec.kernel;
  const int64_t of_patches = bytes_of(call.dtype) * rows * patch;
  const int64_t of_outputs = bytes_of(call.dtype) * rows * call.out[0];
  return {.keeps_input = true,
          .forward_scratch_bytes = of_patches + product_peak(call.dtype, rows, patch, call.out[0]),
          .gradient_scratch_bytes = sums_bytes(call.dtype, elements_of(call.in)) + of_outputs +
                                    product_peak(call.dtype, rows, call.out[0], patch),
          .weight_scratch_bytes = of_patches + of_outputs +
                                  weight_gradient_bytes(call.dtype, rows, call.out[0], patch)};
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
    .memory = memory,
    .parameters = parameters,
    .has_matrix = true};

}  // namespace smp::model
