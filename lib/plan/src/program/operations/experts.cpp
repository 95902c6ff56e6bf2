#include <algorithm>

#include "program/operations/rules.h"

// Mixture of experts: a router scores each token, the token goes to the experts with the best
// scores, and gets back the sum of what they put out, weighed by the scores. Router scores, weights
// and their gradients are fp32 with 16-bit tokens.
//
// A rank has some experts. Rows are the tokens that go to them, sorted by expert and then by token.
// `rows` has token * experts_per_token + place of each, `ends` the end of each expert's rows, and
// `places` the row of each token's choices, -1 where another rank has the expert. The tensors have
// as many rows as there may be at most. The weight of a row is applied ahead of the second matrix,
// so that what experts put out need not be kept.
namespace smp::program {
namespace {

// The wide copies of 16-bit tokens and weights, and the product ahead of its narrow copy.
int64_t wide_copies(const PlacedOperation& p, ValueId x, ValueId weight) {
  if (!is_narrow(p.dtype(x))) return 0;
  return wide_bytes(p.dtype(x)) * (p.elements(x) + p.elements(weight));
}

double router_flops(const PlacedOperation& p) {
  const ValueId x = p.operation.in(0), weight = p.operation.in(1);
  return 2.0 * static_cast<double>(p.rows(x)) * static_cast<double>(p.elements(weight));
}
double router_weight_flops(const PlacedOperation& p) {
  const ValueId scores = p.operation.in(0), x = p.operation.in(1);
  return 2.0 * static_cast<double>(p.elements(scores)) * static_cast<double>(p.cols(x));
}
int64_t scores_bytes(const PlacedOperation& p) {
  return wide_copies(p, p.operation.in(0), p.operation.in(1));
}
// Wide dscores and weight -> dx.
int64_t router_input_bytes(const PlacedOperation& p) {
  const ValueId scores = p.operation.in(0), weight = p.operation.in(1);
  if (!is_narrow(p.dtype(weight))) return 0;
  return wide_bytes(p.dtype(weight)) * (p.elements(weight) + p.rows(scores) * p.cols(weight));
}
int64_t router_weight_bytes(const PlacedOperation& p) {
  const ValueId scores = p.operation.in(0), x = p.operation.in(1);
  const int64_t copy = is_narrow(p.dtype(x)) ? wide_bytes(p.dtype(x)) * p.elements(x) : 0;
  return copy + weight_gradient_scratch(p.dtype(scores), p.rows(scores), p.cols(scores), p.cols(x));
}

const ExpertAttributes& experts_of(const PlacedOperation& p) {
  return p.operation.as<ExpertAttributes>();
}

// Each row with the matrix of one expert: x [rows, in], weight [count * out, in] -> [rows, out].
// Counted are the rows that there are on average.
double expert_flops(const PlacedOperation& p) {
  return 2.0 * experts_of(p).expected_rows * static_cast<double>(p.elements(p.operation.in(1))) /
         static_cast<double>(experts_of(p).count);
}
double expert_weight_flops(const PlacedOperation& p) {
  const ValueId dy = p.operation.in(0), x = p.operation.in(1);
  return 2.0 * experts_of(p).expected_rows * static_cast<double>(p.cols(dy)) *
         static_cast<double>(p.cols(x));
}
// The product of the fullest expert, ahead of its copy to the rows.
int64_t expert_product_bytes(const PlacedOperation& p) {
  const ValueId x = p.operation.in(0), y = p.operation.out(0);
  const int64_t tokens = std::min(p.rows(x), padded_expert_rows(experts_of(p).tokens));
  return bytes_of(p.dtype(y)) * tokens * p.cols(y) +
         product_scratch(p.dtype(x), tokens, p.cols(x), p.cols(y));
}
int64_t expert_weight_bytes(const PlacedOperation& p) {
  const ValueId dy = p.operation.in(0), x = p.operation.in(1);
  const int64_t tokens = experts_of(p).tokens, padded = padded_expert_rows(tokens);
  if (p.dtype(dy) == DType::kF64) return 0;
  const int64_t copies = bytes_of(p.dtype(dy)) * padded * (p.cols(dy) + p.cols(x));
  return copies + weight_gradient_scratch(p.dtype(dy), padded, p.cols(dy), p.cols(x));
}

}  // namespace

const OperationRules kRouterScoresRules = {.name = "router scores",
                                           .kernel = KernelClass::kProduct,
                                           .inputs = "x weight bias?",
                                           .outputs = "scores",
                                           .flops = router_flops,
                                           .scratch_bytes = scores_bytes};
// The experts of each token, best first, and their weights; the scores become probabilities. ~e in
// place of an expert e: it is full, and the token passes it by with weight 0. With a z loss also
// the logsumexp of each token's scores.
const OperationRules kRouteRules = {
    .name = "route",
    .kernel = KernelClass::kRows,
    .inputs = "scores bias?",
    .outputs = "probabilities experts weights log_sums? by_expert?"};
const OperationRules kRouteBackwardRules = {
    .name = "route backward",
    .kernel = KernelClass::kRows,
    .inputs = "probabilities experts weights d_weights log_sums? scores? by_expert?",
    .outputs = "d_scores"};
// Counts the tokens of each expert. To the gradient of the router's bias is added by how many they
// exceed an even share, times the number of experts: a whole number.
const OperationRules kExpertLoadRules = {
    .name = "expert load", .kernel = KernelClass::kRows, .inputs = "experts", .outputs = ""};
const OperationRules kRouterInputGradientRules = {.name = "router, d input",
                                                  .kernel = KernelClass::kProduct,
                                                  .inputs = "d_scores weight",
                                                  .outputs = "dx",
                                                  .flops = router_flops,
                                                  .scratch_bytes = router_input_bytes};
const OperationRules kRouterWeightGradientRules = {.name = "router, d weight",
                                                   .kernel = KernelClass::kProduct,
                                                   .inputs = "d_scores x",
                                                   .outputs = "",
                                                   .flops = router_weight_flops,
                                                   .scratch_bytes = router_weight_bytes};
const OperationRules kSigmoidRules = {.name = "sigmoid", .inputs = "x", .outputs = "y"};
const OperationRules kSigmoidBackwardRules = {
    .name = "sigmoid backward", .inputs = "y dy", .outputs = "dx"};
const OperationRules kSortByExpertRules = {.name = "sort by expert",
                                           .kernel = KernelClass::kRows,
                                           .inputs = "experts",
                                           .outputs = "rows ends places"};
const OperationRules kDispatchRules = {.name = "dispatch",
                                       .kernel = KernelClass::kRows,
                                       .inputs = "x rows ends? weighed?",
                                       .outputs = "y d_weights?"};
// The sum of each token's rows, best expert first.
const OperationRules kCombineRules = {
    .name = "combine", .kernel = KernelClass::kRows, .inputs = "x places weights?", .outputs = "y"};
// A bias is that of the row's expert, times the row's weight if there are weights.
const OperationRules kExpertProductRules = {.name = "expert product",
                                            .kernel = KernelClass::kProduct,
                                            .inputs = "x weight ends? bias? weights? rows?",
                                            .outputs = "y",
                                            .flops = expert_flops,
                                            .scratch_bytes = expert_product_bytes};
const OperationRules kExpertInputGradientRules = {.name = "expert product, d input",
                                                  .kernel = KernelClass::kProduct,
                                                  .inputs = "dy weight ends?",
                                                  .outputs = "dx",
                                                  .flops = expert_flops,
                                                  .scratch_bytes = expert_product_bytes};
const OperationRules kExpertWeightGradientRules = {.name = "expert product, d weight",
                                                   .kernel = KernelClass::kProduct,
                                                   .inputs = "dy x ends?",
                                                   .outputs = "product?",
                                                   .flops = expert_weight_flops,
                                                   .scratch_bytes = expert_weight_bytes};
// Of the biases: the sums of each expert's rows, times their weights if there are any. Then the
// bias adds to the gradients of the weights as well.
const OperationRules kExpertBiasGradientRules = {
    .name = "expert bias gradient",
    .kernel = KernelClass::kRows,
    .inputs = "dy ends bias? weights? rows? d_weights?",
    .outputs = "d_weights?"};
// Each row times its weight. Without a gate beside it `up` has the columns of both. Without `rows`
// row n is token n, and without weights they are 1.
const OperationRules kExpertActivationRules = {
    .name = "expert activation", .inputs = "up gate? weights? rows? ends?", .outputs = "y half?"};
// y again, in the memory of its gradient, and the gradient of the weights.
const OperationRules kExpertActivationBackwardRules = {
    .name = "expert activation backward",
    .inputs = "up gate? weights? rows? ends? dy half?",
    .outputs = "d_up d_gate? y? d_weights?"};

// Where ranks share the experts: each rank tells the others how many of its rows go to each of
// their experts. `counts` has those of each rank for each expert of this one.
const OperationRules kExpertCountsRules = {.name = "expert counts",
                                           .kernel = KernelClass::kMessage,
                                           .inputs = "ends",
                                           .outputs = "counts ends",
                                           .message = mesh::CollectiveOp::kAllToAll};
// The weights of the rows that go, and the gradient of each choice's from those of the rows, 0
// where another rank has the token.
const OperationRules kTakeWeightsRules = {.name = "take weights",
                                          .kernel = KernelClass::kRows,
                                          .inputs = "weights rows ends",
                                          .outputs = "y"};
const OperationRules kPutWeightsRules = {
    .name = "put weights", .kernel = KernelClass::kRows, .inputs = "x places", .outputs = "y"};
// Rows sorted by expert go to the ranks that have these, where they lie by rank; and back.
const OperationRules kSendRowsRules = {.name = "send rows",
                                       .kernel = KernelClass::kMessage,
                                       .inputs = "x ends counts",
                                       .outputs = "y",
                                       .message = mesh::CollectiveOp::kSend};
const OperationRules kReturnRowsRules = {.name = "return rows",
                                         .kernel = KernelClass::kMessage,
                                         .inputs = "x ends counts",
                                         .outputs = "y",
                                         .message = mesh::CollectiveOp::kSend};
// From rows by rank, and of each by expert, to rows by expert, and of each by rank; and back.
const OperationRules kRowsByExpertRules = {
    .name = "rows by expert", .kernel = KernelClass::kRows, .inputs = "x counts", .outputs = "y"};
const OperationRules kRowsByRankRules = {
    .name = "rows by rank", .kernel = KernelClass::kRows, .inputs = "x counts", .outputs = "y"};

}  // namespace smp::program
