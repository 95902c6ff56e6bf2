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
const OperationRules kNormBackwardRules = {
    .name = "norm backward",
    .kernel = KernelClass::kRows,
    .inputs = "dy x? statistics weight residual? wide? unweighted?",
    .outputs = "dx sums?"};
// x + dropout of (y + bias) in the memory of y, and the norm of this sum.
const OperationRules kSumAndNormRules = {.name = "sum and norm",
                                         .kernel = KernelClass::kRows,
                                         .inputs = "x y bias? norm.weight norm.bias?",
                                         .outputs = "sum normed statistics"};

// Norms of queries and of keys over all heads, in rows of [q heads | k heads | v heads]. Of each
// row two sums over the heads: of the squares, and backward of dy * weight * x / rms. The ranks
// that share the heads have added up theirs before the sums are read. Values are copied.
const OperationRules kQkSquaresRules = {
    .name = "qk squares", .kernel = KernelClass::kRows, .inputs = "qkv", .outputs = "squares"};
const OperationRules kQkNormRules = {.name = "qk norm",
                                     .kernel = KernelClass::kRows,
                                     .inputs = "qkv squares q_norm.weight k_norm.weight",
                                     .outputs = "y"};
// Adds to the gradients of the weights.
const OperationRules kQkNormSumsRules = {.name = "qk norm, sums",
                                         .kernel = KernelClass::kRows,
                                         .inputs = "dy qkv squares q_norm.weight k_norm.weight",
                                         .outputs = "sums"};
const OperationRules kQkNormBackwardRules = {
    .name = "qk norm backward",
    .kernel = KernelClass::kRows,
    .inputs = "dy qkv squares sums q_norm.weight k_norm.weight",
    .outputs = "dx"};

}  // namespace smp::program
