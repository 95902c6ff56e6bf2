#include "model/operators/operator_rules.h"

namespace smp::model {
namespace {

SampleShape output(const OperatorSpec& /*spec*/, const SampleShape& in) {
  return {elements_of(in)};
}

}  // namespace

const OperatorRules kFlattenRules = {.type = "flatten", .keys = {}, .output = output};

}  // namespace smp::model
