#include "program/layers/region.h"

namespace smp::program {

ValueId Region::gathered(ValueId x, std::string_view label) const {
  if (!splits_tokens()) return x;
  const Value part = builder_.value(x);
  const ValueId all =
      builder_.made(part.name + " of all tokens", all_tokens(part.shape[1]), part.dtype);
  builder_.add(OperationKind::kAllGather, {x}, {all}, MessageAttributes{label});
  return all;
}

Region::Sum Region::sum(ValueId y, std::string_view label, bool waits) const {
  const MessageAttributes message{label, waits};
  const Value addend = builder_.value(y);
  if (!splits_tokens()) {
    if (!is_shared_) return {y, y};
    const ValueId result = builder_.over(addend.name + " summed", y);
    builder_.add(OperationKind::kAllReduce, {y}, {result}, message);
    return {kNoValue, result, !waits};
  }
  const ValueId result = builder_.made(addend.name + (is_shared_ ? " summed" : " of own tokens"),
                                       own_tokens(addend.shape[1]), addend.dtype);
  if (!is_shared_) {
    builder_.add(OperationKind::kOwnTokens, {y}, {result}, OwnTokensAttributes{first_token()});
    return {kNoValue, result};
  }
  builder_.add(OperationKind::kReduceScatter, {y}, {result}, message);
  return {y, result, !waits};
}

ValueId Region::wait(const Sum& sum) const {
  if (!sum.in_flight) return sum.result;
  const ValueId there = builder_.over(builder_.value(sum.result).name, sum.result);
  builder_.add(OperationKind::kWait, {sum.result, sum.addends}, {there});
  return there;
}

ValueId Region::all_reduced(ValueId x, std::string_view label) const {
  if (!is_shared_) return x;
  const ValueId result = builder_.over(builder_.value(x).name + " summed", x);
  builder_.add(OperationKind::kAllReduce, {x}, {result}, MessageAttributes{label});
  return result;
}

}  // namespace smp::program
