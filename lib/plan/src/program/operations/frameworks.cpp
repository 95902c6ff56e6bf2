#include "program/operations/rules.h"

// What other frameworks run as operations of their own (habits.h).
namespace smp::program {
namespace {

// Of all pairs of a query and a key: nothing is left out.
double pairs_of(const AttentionAttributes& a) {
  return static_cast<double>(a.batch * a.heads) * static_cast<double>(a.sequence) *
         static_cast<double>(a.keys);
}
double scores_flops(const PlacedOperation& p) {
  const auto& a = p.operation.as<AttentionAttributes>();
  return 2 * static_cast<double>(a.head_dim) * pairs_of(a);
}
double scores_backward_flops(const PlacedOperation& p) { return 2 * scores_flops(p); }
double values_flops(const PlacedOperation& p) {
  const auto& a = p.operation.as<AttentionAttributes>();
  return 2 * static_cast<double>(a.value_width()) * pairs_of(a);
}
double values_backward_flops(const PlacedOperation& p) { return 2 * values_flops(p); }

double scan_flops(const PlacedOperation& p) { return p.operation.as<ScanAttributes>().flops; }
// The chunks' states are made again, and two gradients of each product
// (mamba_ssm/ops/triton/ssd_combined.py).
double scan_backward_flops(const PlacedOperation& p) { return 3 * scan_flops(p); }

}  // namespace

// Rotary positions of queries and keys, in their memory.
const OperationRules kRotateRules = {.name = "rotate", .inputs = "qkv", .outputs = "y"};
const OperationRules kRotateBackwardRules = {
    .name = "rotate backward", .inputs = "dy", .outputs = "d_qkv"};
// Norms of queries and keys, head by head: y has both.
const OperationRules kHeadNormsRules = {.name = "head norms",
                                        .kernel = KernelClass::kRows,
                                        .inputs = "qkv q_norm.weight? k_norm.weight?",
                                        .outputs = "y"};
const OperationRules kHeadNormsBackwardRules = {.name = "head norms backward",
                                                .kernel = KernelClass::kRows,
                                                .inputs = "d_qkv qkv q_norm.weight? k_norm.weight?",
                                                .outputs = "dx"};
// Keys and values once for each query head.
const OperationRules kRepeatHeadsRules = {.name = "repeat heads", .inputs = "qkv", .outputs = "y"};
const OperationRules kRepeatHeadsBackwardRules = {
    .name = "repeat heads backward", .inputs = "dy", .outputs = "d_qkv"};
// Attention in three: every score is made, and kept.
const OperationRules kScoresRules = {.name = "scores",
                                     .kernel = KernelClass::kProduct,
                                     .inputs = "qkv kv? normed?",
                                     .outputs = "scores",
                                     .flops = scores_flops};
const OperationRules kScoresBackwardRules = {.name = "scores backward",
                                             .kernel = KernelClass::kProduct,
                                             .inputs = "d_scores d_values qkv kv? normed?",
                                             .outputs = "d_qkv d_kv?",
                                             .flops = scores_backward_flops};
const OperationRules kSoftmaxRules = {
    .name = "softmax", .kernel = KernelClass::kRows, .inputs = "scores", .outputs = "weights"};
const OperationRules kSoftmaxBackwardRules = {.name = "softmax backward",
                                              .kernel = KernelClass::kRows,
                                              .inputs = "d_weights weights",
                                              .outputs = "d_scores"};
const OperationRules kWeightedValuesRules = {.name = "weighted values",
                                             .kernel = KernelClass::kProduct,
                                             .inputs = "weights qkv kv?",
                                             .outputs = "result",
                                             .flops = values_flops};
const OperationRules kWeightedValuesBackwardRules = {.name = "weighted values backward",
                                                     .kernel = KernelClass::kProduct,
                                                     .inputs = "dy weights qkv kv?",
                                                     .outputs = "d_weights d_values",
                                                     .flops = values_backward_flops};
// Element by element. b may be some columns of a wider tensor.
const OperationRules kMultiplyRules = {.name = "multiply", .inputs = "a b", .outputs = "y"};
const OperationRules kMultiplyBackwardRules = {
    .name = "multiply backward", .inputs = "dy a b", .outputs = "da db"};
const OperationRules kScanRules = {.name = "convolution and scan",
                                   .kernel = KernelClass::kAttention,
                                   .inputs = "x",
                                   .outputs = "y",
                                   .flops = scan_flops};
const OperationRules kScanBackwardRules = {.name = "convolution and scan backward",
                                           .kernel = KernelClass::kAttention,
                                           .inputs = "dy x other?",
                                           .outputs = "dx",
                                           .flops = scan_backward_flops};
const OperationRules kAllToAllRules = {.name = "all_to_all",
                                       .kernel = KernelClass::kMessage,
                                       .inputs = "x",
                                       .outputs = "y",
                                       .message = mesh::CollectiveOp::kAllToAll};

}  // namespace smp::program
