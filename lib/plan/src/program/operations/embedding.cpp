#include "program/operations/rules.h"

namespace smp::program {

// Zeros where the rank's part of the table does not have the row.
const OperationRules kTakeRowsRules = {.name = "take rows",
                                       .kernel = KernelClass::kRows,
                                       .inputs = "ids table",
                                       .outputs = "y",
                                       .moves_rows = true};
const OperationRules kAddRowsRules = {.name = "d rows",
                                      .kernel = KernelClass::kRows,
                                      .inputs = "ids dy",
                                      .outputs = "",
                                      .moves_rows = true};
// Positions count from the beginning of each sample, or document of one.
const OperationRules kAddPositionsRules = {.name = "add positions",
                                           .kernel = KernelClass::kRows,
                                           .inputs = "x positions",
                                           .outputs = "y",
                                           .moves_rows = true};
const OperationRules kPositionGradientRules = {.name = "d positions",
                                               .kernel = KernelClass::kRows,
                                               .inputs = "dy",
                                               .outputs = "",
                                               .moves_rows = true};

}  // namespace smp::program
