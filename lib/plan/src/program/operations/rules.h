#pragma once

#include <algorithm>
#include <cstdint>

#include "smp/plan/program/operation.h"

// The entries of the table of operations, each family in its file, and what they share.
namespace smp::program {

// In the order of the kinds of each family.
extern const OperationRules kNormRules, kNormAgainRules, kNormBackwardRules, kSumAndNormRules,
    kQkSquaresRules, kQkNormRules, kQkNormSumsRules, kQkNormBackwardRules;
extern const OperationRules kProductRules, kInputGradientRules, kWeightGradientRules,
    kBiasGradientRules, kLogitsRules;
extern const OperationRules kAttentionRules, kAttentionBackwardRules, kLatentHeadsRules,
    kLatentHeadsBackwardRules, kSplitColumnsRules, kJoinColumnsRules, kPlaceColumnsRules,
    kTakeColumnsRules;
extern const OperationRules kActivationRules, kActivationBackwardRules, kAddBiasRules, kDropRules,
    kAddRules, kAddBranchRules, kScaleRules, kCopyRules, kCastRules, kAccumulateRules;
extern const OperationRules kTakeRowsRules, kAddRowsRules, kAddPositionsRules,
    kPositionGradientRules;
extern const OperationRules kSoftmaxLossRules, kSoftmaxGradientRules;
extern const OperationRules kOwnTokensRules, kAllReduceRules, kAllGatherRules, kReduceScatterRules,
    kWaitRules, kGatherChannelsRules, kOwnChannelsRules, kExchangeRules, kExpertCountsRules,
    kTakeWeightsRules, kPutWeightsRules, kSendRowsRules, kReturnRowsRules, kRowsByExpertRules,
    kRowsByRankRules;
extern const OperationRules kConvolutionRules, kConvolutionInputGradientRules,
    kConvolutionWeightGradientRules, kReluRules, kReluBackwardRules, kTanhRules, kTanhBackwardRules,
    kMaxPoolRules, kMaxPoolBackwardRules, kMeanPoolRules, kMeanPoolBackwardRules, kReshapeRules;
extern const OperationRules kRouterScoresRules, kRouteRules, kRouteBackwardRules, kExpertLoadRules,
    kRouterInputGradientRules, kRouterWeightGradientRules, kSigmoidRules, kSigmoidBackwardRules,
    kSortByExpertRules, kDispatchRules, kCombineRules, kExpertProductRules,
    kExpertInputGradientRules, kExpertWeightGradientRules, kExpertBiasGradientRules,
    kExpertActivationRules, kExpertActivationBackwardRules;
extern const OperationRules kRotateRules, kRotateBackwardRules, kHeadNormsRules,
    kHeadNormsBackwardRules, kRepeatHeadsRules, kRepeatHeadsBackwardRules, kScoresRules,
    kScoresBackwardRules, kSoftmaxRules, kSoftmaxBackwardRules, kWeightedValuesRules,
    kWeightedValuesBackwardRules, kMultiplyRules, kMultiplyBackwardRules, kScanRules,
    kScanBackwardRules, kAllToAllRules;

// Bytes of statistics, scratch buffers and gradients of weights.
inline int64_t wide_bytes(DType dtype) { return bytes_of(wide(dtype)); }
inline bool is_narrow(DType dtype) { return bytes_of(dtype) == 2; }

// Bytes beside the result of the product of [rows, depth] and the transpose of [cols, depth]. fp16
// uses fp32 copies: the factors' are gone before the result is rounded.
inline int64_t product_scratch(DType dtype, int64_t rows, int64_t depth, int64_t cols) {
  if (dtype != DType::kF16) return 0;
  const int64_t result = bytes_of(dtype) * rows * cols, wide_result = 2 * result;
  return wide_result + std::max<int64_t>(0, wide_bytes(dtype) * depth * (rows + cols) - result);
}

// Bytes alive while the gradient of a matrix [rows, cols] is computed from `tokens` rows of both
// factors. In fp32: the product, before it is added to the flat buffer, and a transposed copy of
// the narrower factor, which has a row per token. In fp64 the product adds to the buffer itself.
// Both 16-bit factors are widened.
inline int64_t weight_gradient_scratch(DType dtype, int64_t tokens, int64_t rows, int64_t cols) {
  if (dtype == DType::kF64) return 0;
  const int64_t narrower = std::min(rows, cols);
  // One column, or one row, is its own transpose.
  const int64_t copied = narrower > 1 && tokens > 1 ? narrower : 0;
  const int64_t factors = is_narrow(dtype) ? rows + cols : copied;
  return wide_bytes(dtype) * (rows * cols + tokens * factors);
}

}  // namespace smp::program
