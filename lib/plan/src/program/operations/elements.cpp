#include "program/operations/rules.h"

// Element by element.
namespace smp::program {

// Gated: of [rows, gate | up]. A bias, of the columns of u, is added first.
const OperationRules kActivationRules = {.name = "activation", .inputs = "u bias?", .outputs = "y"};
// The gradient of u, and y again: gated, the gradient lies in u and y in dy, else the other way
// round. A bias's gradient is added to.
const OperationRules kActivationBackwardRules = {
    .name = "activation backward", .inputs = "u bias? dy other?", .outputs = "du y?"};
const OperationRules kAddBiasRules = {.name = "add bias", .inputs = "x bias", .outputs = "y"};
// Which elements go follows from their place, or from a mask that the forward has kept.
const OperationRules kDropRules = {.name = "dropout", .inputs = "x mask?", .outputs = "y mask?"};
// x + y in the memory of y.
const OperationRules kAddRules = {.name = "add", .inputs = "x y", .outputs = "sum"};
// x + dropout of (y + bias) in the memory of y.
const OperationRules kAddBranchRules = {
    .name = "add branch", .inputs = "x y bias?", .outputs = "sum mask?"};
// Times a constant and a number of the call.
const OperationRules kScaleRules = {.name = "scale", .inputs = "x factor?", .outputs = "y"};
const OperationRules kCopyRules = {.name = "copy", .inputs = "x", .outputs = "y"};
const OperationRules kCastRules = {.name = "cast", .inputs = "x", .outputs = "y"};
// Adds x to a parameter's gradient; of several, a row of x to each.
const OperationRules kAccumulateRules = {.name = "accumulate", .inputs = "x", .outputs = ""};

}  // namespace smp::program
