#include "model/operators/operator_rules.h"

// Element by element. Where a backward needs a factor it keeps the input, never the output: that is
// the next layer's. ReLU keeps a byte an element: whether it was above 0.
namespace smp::model {
namespace {

SampleShape same(const OperatorSpec& /*spec*/, const SampleShape& in) { return in; }

OperatorMemory relu_memory(const OperatorCall& call) {
  return {.works_in_place = true,
          .kept_bytes = call.batch * elements_of(call.in),
          .gradient_in_place = true};
}

OperatorMemory smooth_memory(const OperatorCall& /*call*/) {
  return {.keeps_input = true, .gradient_in_place = true};
}

}  // namespace

const OperatorRules kReluRules = {
    .type = "relu", .keys = {}, .output = same, .memory = relu_memory};
const OperatorRules kGeluRules = {
    .type = "gelu", .keys = {}, .output = same, .memory = smooth_memory};
const OperatorRules kTanhRules = {
    .type = "tanh", .keys = {}, .output = same, .memory = smooth_memory};

}  // namespace smp::model
