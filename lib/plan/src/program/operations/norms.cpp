#include "program/operations/rules.h"

// The norm of each row: (x - mean) * rstd * weight + bias. LayerNorm keeps (mean, rstd) of each
// row; RMSNorm has no mean and no bias, and keeps rstd alone. A norm of several kernels also makes
// x in fp32 and the rows before their weight.
namespace smp::program {

const OperationRules kNormRules = {.name = "norm",
                                   .kernel = KernelClass::kRows,
                                   .inputs = "x weight bias?",
                                   .outputs = "y statistics wide? unweighted?"};
// y again, from the kept statistics.
const OperationRules kNormAgainRules = {.name = "norm again",
                                        .kernel = KernelClass::kRows,
                                        .inputs = "x statistics weight bias?",
                                        .outputs = "y"};
// residual + the gradient of x, in the memory of dy. Adds to the gradients of weight and bias, or
// makes their sums over the rank's own tokens.
const OperationRules kNormBackwardRules = {.name = "norm backward",
                                           .kernel = KernelClass::kRows,
                                           .inputs =
                                               "dy x? statistics weight residual? wide? unweighted?",
                                           .outputs = "dx sums?"};

}  // namespace smp::program
