#include "model/alive_bytes.h"
#include "model/operators/operator_rules.h"

namespace smp::model {
namespace {

SampleShape output(const OperatorSpec& spec, const SampleShape& in) {
  check_flat(spec, in);
  return {spec.out};
}

std::vector<ParameterSpec> parameters(const OperatorSpec& spec, const SampleShape& in) {
  return matrix_and_bias(spec.out, in[0]);
}

OperatorMemory memory(const OperatorCall& call) {
  const int64_t in = call.in[0], out = call.out[0], element = bytes_of(call.dtype) * call.batch;
  return {.keeps_input = true,
          .forward_scratch_bytes = product_peak(call.dtype, call.batch, in, out) - element * out,
          .gradient_scratch_bytes = product_peak(call.dtype, call.batch, out, in) - element * in,
          .weight_scratch_bytes = weight_gradient_bytes(call.dtype, call.batch, out, in)};
}

}  // namespace

const OperatorRules kLinearRules = {.type = "linear",
                                    .keys = {{"out", &OperatorSpec::out, 1, kMostOut}},
                                    .output = output,
                                    .memory = memory,
                                    .parameters = parameters,
                                    .has_matrix = true};

}  // namespace smp::model
