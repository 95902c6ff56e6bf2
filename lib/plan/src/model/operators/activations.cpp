#include "model/operators/operator_rules.h"

// Element by element.
namespace smp::model {
namespace {

SampleShape same(const OperatorSpec& /*spec*/, const SampleShape& in) { return in; }

}  // namespace

const OperatorRules kReluRules = {.type = "relu", .keys = {}, .output = same};
const OperatorRules kGeluRules = {.type = "gelu", .keys = {}, .output = same};
const OperatorRules kTanhRules = {.type = "tanh", .keys = {}, .output = same};

}  // namespace smp::model
