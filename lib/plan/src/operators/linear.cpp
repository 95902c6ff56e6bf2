#include "alive_bytes.h"
#include "operators/operator_rules.h"

namespace smp {
namespace {

SampleShape output(const OperatorSpec& spec, const SampleShape& in) {
  check_flat(spec, in);
  return {spec.out};
}

std::vector<ParameterSpec> parameters(const OperatorSpec& spec, const SampleShape& in) {
  return matrix_and_bias(spec.out, in[0]);
}

OperatorMemory memory(const OperatorCall& call) {
  return {.keeps_input = true,
          .weight_scratch_bytes =
              weight_gradient_bytes(call.dtype, call.batch, call.out[0], call.in[0])};
}

}  // namespace

const OperatorRules kLinearRules = {.type = "linear",
                                    .keys = {{"out", &OperatorSpec::out, 1, kMostOut}},
                                    .output = output,
                                    .memory = memory,
                                    .parameters = parameters,
                                    .has_matrix = true};

}  // namespace smp
