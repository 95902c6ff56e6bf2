#include "model/operators/operator_rules.h"

// Masks are functions of an element's place, so nothing is kept.
namespace smp::model {
namespace {

SampleShape output(const OperatorSpec& /*spec*/, const SampleShape& in) { return in; }

OperatorMemory memory(const OperatorCall& /*call*/) {
  return {.works_in_place = true, .gradient_in_place = true};
}

}  // namespace

const OperatorRules kDropoutRules = {
    .type = "dropout", .keys = {}, .output = output, .memory = memory, .takes_p = true};

}  // namespace smp::model
