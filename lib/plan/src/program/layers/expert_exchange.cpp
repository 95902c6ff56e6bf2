#include "program/layers/expert_exchange.h"

#include <algorithm>

#include "smp/plan/base/check.h"

namespace smp::program {
namespace {

constexpr std::string_view kCountsLabel = "expert.counts", kWeightsForward = "expert.row_weights",
                           kWeightsBackward = "expert.row_weight_gradients";

}  // namespace

ExpertExchange::ExpertExchange(ProgramBuilder& builder, const Region& region,
                               const RouterAttributes& router)
    : builder_(builder), degree_(builder.call().expert_degree) {
  if (!exists()) return;
  const model::LayerCall& call = builder.call();
  SMP_CHECK(call.expert_tensor_degree == 1 && degree_ % region.degree() == 0);
  const int64_t tokens = call.tokens();
  const int64_t own = mesh::part_size(tokens, region.degree(), region.rank());
  experts_ = router.experts / degree_;
  sent_ = own * router.experts_per_token;
  // The ranks that share the experts route so many microbatches.
  const int64_t microbatches = degree_ / region.degree();
  const int64_t each = router.capacity > 0 ? router.capacity : tokens;
  fullest_ = microbatches * each;
  received_ = std::min(microbatches * tokens * std::min(router.experts_per_token, experts_),
                       experts_ * fullest_);
  sorting_ = {.first = 0,
              .count = router.experts,
              .tokens = each,
              .per_token = router.experts_per_token,
              .activation = {},
              .expected_rows = static_cast<double>(sent_),
              .first_token = mesh::part_begin(tokens, region.degree(), region.rank()),
              .own_tokens = own};
}

ExpertExchange::Sorted ExpertExchange::sort(ValueId chosen) {
  sorted_.rows = builder_.made("rows by expert", {{sent_, "rows"}}, DType::kI32);
  all_ends_ = builder_.made("ends of all experts", {{sorting_.count, "experts"}}, DType::kI32);
  sorted_.places = builder_.made("places", builder_.value(chosen).shape, DType::kI32);
  builder_.add(OperationKind::kSortByExpert, {chosen}, {sorted_.rows, all_ends_, sorted_.places},
               sorting_);
  counts_ =
      builder_.made("rows that come", {{degree_, "ranks"}, {experts_, "experts"}}, DType::kI32);
  sorted_.ends = builder_.made("ends", {{experts_, "experts"}}, DType::kI32);
  builder_.add(OperationKind::kExpertCounts, {all_ends_}, {counts_, sorted_.ends},
               RowExchangeAttributes{.label = kCountsLabel, .degree = degree_});
  return sorted_;
}

ExpertExchange::UnderWay ExpertExchange::send(OperationKind kind, ValueId x, int64_t rows,
                                              std::string_view label, bool waits) {
  const Value from = builder_.value(x);
  Shape shape = from.shape;
  shape[0] = {rows, "rows"};
  const bool goes = kind == OperationKind::kSendRows;
  const std::string name = from.name + (goes ? " come" : " returned");
  const UnderWay under_way{x, builder_.made(name, shape, from.dtype), name};
  builder_.add(kind, {x, all_ends_, counts_}, {under_way.come},
               RowExchangeAttributes{.label = label,
                                     .degree = degree_,
                                     .expected_rows = sorting_.expected_rows,
                                     .waits = waits});
  return under_way;
}

ValueId ExpertExchange::come(const UnderWay& rows) {
  const ValueId there = builder_.over(rows.name, rows.come);
  builder_.add(OperationKind::kWait, {rows.come, rows.sent}, {there});
  return there;
}

// One expert's rows lie by rank in either order.
ValueId ExpertExchange::grouped(OperationKind kind, ValueId x) {
  if (experts_ == 1) return x;
  const Value from = builder_.value(x);
  const bool by_expert = kind == OperationKind::kRowsByExpert;
  const ValueId y =
      builder_.made(from.name + (by_expert ? " by expert" : " by rank"), from.shape, from.dtype);
  builder_.add(kind, {x, counts_}, {y},
               RowExchangeAttributes{
                   .label = {}, .degree = degree_, .expected_rows = sorting_.expected_rows});
  return y;
}

ExpertExchange::UnderWay ExpertExchange::start_to_experts(ValueId x, const std::string& name,
                                                          std::string_view label) {
  const ValueId rows =
      builder_.made(name, {{sent_, "rows"}, builder_.value(x).shape[1]}, builder_.dtype());
  builder_.add(OperationKind::kDispatch, {x, sorted_.rows, all_ends_}, {rows}, sorting_);
  return send(OperationKind::kSendRows, rows, received_, label, false);
}

ValueId ExpertExchange::at_experts(const UnderWay& rows) {
  return grouped(OperationKind::kRowsByExpert, come(rows));
}

ValueId ExpertExchange::weights_to_experts(ValueId weights) {
  const ValueId rows =
      builder_.made("weights by row", {{sent_, "rows"}}, builder_.value(weights).dtype);
  builder_.add(OperationKind::kTakeWeights, {weights, sorted_.rows, all_ends_}, {rows});
  const UnderWay sent = send(OperationKind::kSendRows, rows, received_, kWeightsForward, true);
  return grouped(OperationKind::kRowsByExpert, sent.come);
}

ExpertExchange::UnderWay ExpertExchange::start_to_tokens(ValueId x, std::string_view label) {
  return send(OperationKind::kReturnRows, grouped(OperationKind::kRowsByRank, x), sent_, label,
              false);
}

ValueId ExpertExchange::at_tokens(const UnderWay& rows) { return come(rows); }

ValueId ExpertExchange::weights_to_tokens(ValueId weights) {
  const UnderWay back =
      send(OperationKind::kReturnRows, grouped(OperationKind::kRowsByRank, weights), sent_,
           kWeightsBackward, true);
  const ValueId by_choice = builder_.made(
      "d weights by choice", builder_.value(sorted_.places).shape, builder_.value(weights).dtype);
  builder_.add(OperationKind::kPutWeights, {back.come, sorted_.places}, {by_choice});
  return by_choice;
}

}  // namespace smp::program
