#include "program/operations/rules.h"

namespace smp::program {

// Zeros where the rank's part of the table does not have the row.
const OperationRules kTakeRowsRules = {
    .name = "take rows", .kernel = KernelClass::kRows, .inputs = "ids table", .outputs = "y"};
const OperationRules kAddRowsRules = {
    .name = "d rows", .kernel = KernelClass::kRows, .inputs = "ids dy", .outputs = ""};
// Positions count from the beginning of each sample, or document of one.
const OperationRules kAddPositionsRules = {
    .name = "add positions", .kernel = KernelClass::kRows, .inputs = "x positions", .outputs = "y"};
const OperationRules kPositionGradientRules = {
    .name = "d positions", .kernel = KernelClass::kRows, .inputs = "dy", .outputs = ""};

}  // namespace smp::program
