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

}  // namespace

const OperatorRules kLinearRules = {.type = "linear",
                                    .keys = {{"out", &OperatorSpec::out, 1, kMostOut}},
                                    .output = output,
                                    .parameters = parameters,
                                    .has_matrix = true};

}  // namespace smp::model
