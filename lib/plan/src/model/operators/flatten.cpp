#include "model/operators/operator_rules.h"

namespace smp::model {
namespace {

SampleShape output(const OperatorSpec& /*spec*/, const SampleShape& in) {
  return {elements_of(in)};
}

OperatorMemory memory(const OperatorCall& /*call*/) { return {.is_view = true}; }

}  // namespace

const OperatorRules kFlattenRules = {
    .type = "flatten", .keys = {}, .output = output, .memory = memory};

}  // namespace smp::model
