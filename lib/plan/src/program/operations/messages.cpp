#include <algorithm>

#include "program/operations/rules.h"

// Messages between the tensor ranks, and the parts of tensors that go with them.
namespace smp::program {
namespace {

// All parts are sent as large as the largest, and then put side by side.
int64_t gather_scratch(const PlacedOperation& p) {
  const auto& [cut, place] = p.operation.as<ChannelAttributes>();
  const ValueId own = p.operation.in(0), all = p.operation.out(0);
  const int64_t column = bytes_of(p.dtype(own)) * p.rows(own);
  const int64_t largest = column * cut.size({place.degree, 0});
  const int64_t padded = cut.size(place) * column < largest ? largest : 0;
  const int64_t result = bytes_of(p.dtype(all)) * p.elements(all);
  return place.degree * largest + std::max<int64_t>(0, padded - result);
}

// What is sent, and what has come, both by rank.
int64_t exchange_scratch(const PlacedOperation& p) {
  const ValueId x = p.operation.in(0);
  return 2 * bytes_of(p.dtype(x)) * p.elements(x);
}

}  // namespace

const OperationRules kOwnTokensRules = {.name = "own tokens", .inputs = "x", .outputs = "y"};
const OperationRules kAllReduceRules = {.name = "all_reduce",
                                        .kernel = KernelClass::kMessage,
                                        .inputs = "x",
                                        .outputs = "y",
                                        .message = mesh::CollectiveOp::kAllReduce};
const OperationRules kAllGatherRules = {.name = "all_gather",
                                        .kernel = KernelClass::kMessage,
                                        .inputs = "x",
                                        .outputs = "y",
                                        .message = mesh::CollectiveOp::kAllGather};
const OperationRules kReduceScatterRules = {.name = "reduce_scatter",
                                            .kernel = KernelClass::kMessage,
                                            .inputs = "x",
                                            .outputs = "y",
                                            .message = mesh::CollectiveOp::kReduceScatter};
// The end of a message: its result may be read from here on, and its addends may go.
const OperationRules kWaitRules = {
    .name = "wait", .kernel = KernelClass::kView, .inputs = "result addends?", .outputs = "y"};
const OperationRules kGatherChannelsRules = {.name = "gather channels",
                                             .kernel = KernelClass::kMessage,
                                             .inputs = "x",
                                             .outputs = "y",
                                             .scratch_bytes = gather_scratch,
                                             .message = mesh::CollectiveOp::kAllGather};
const OperationRules kExchangeRules = {.name = "exchange heads",
                                       .kernel = KernelClass::kMessage,
                                       .inputs = "x",
                                       .outputs = "y",
                                       .scratch_bytes = exchange_scratch,
                                       .message = mesh::CollectiveOp::kAllToAll};
const OperationRules kOwnChannelsRules = {.name = "own channels", .inputs = "x", .outputs = "y"};

}  // namespace smp::program
