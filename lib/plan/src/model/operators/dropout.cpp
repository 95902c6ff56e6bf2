#include "model/operators/operator_rules.h"

namespace smp::model {
namespace {

SampleShape output(const OperatorSpec& /*spec*/, const SampleShape& in) { return in; }

}  // namespace

const OperatorRules kDropoutRules = {
    .type = "dropout", .keys = {}, .output = output, .takes_p = true};

}  // namespace smp::model
