#include "program/operations/rules.h"

namespace smp::program {

const OperationRules& rules_of(OperationKind kind) {
  // In the order of OperationKind.
  static const OperationRules* const kRules[] = {
      &kNormRules,
      &kNormAgainRules,
      &kNormBackwardRules,
      &kProductRules,
      &kInputGradientRules,
      &kWeightGradientRules,
      &kAddBiasRules,
      &kBiasGradientRules,
      &kAttentionRules,
      &kAttentionBackwardRules,
      &kActivationRules,
      &kActivationBackwardRules,
      &kDropRules,
      &kAddRules,
      &kAddBranchRules,
      &kScaleRules,
      &kCopyRules,
      &kCastRules,
      &kAccumulateRules,
      &kTakeRowsRules,
      &kAddRowsRules,
      &kAddPositionsRules,
      &kPositionGradientRules,
      &kLogitsRules,
      &kSoftmaxLossRules,
      &kSoftmaxGradientRules,
      &kOwnTokensRules,
      &kAllReduceRules,
      &kAllGatherRules,
      &kReduceScatterRules,
      &kWaitRules,
      &kConvolutionRules,
      &kConvolutionInputGradientRules,
      &kConvolutionWeightGradientRules,
      &kReluRules,
      &kReluBackwardRules,
      &kTanhRules,
      &kTanhBackwardRules,
      &kMaxPoolRules,
      &kMaxPoolBackwardRules,
      &kMeanPoolRules,
      &kMeanPoolBackwardRules,
      &kReshapeRules,
      &kGatherChannelsRules,
      &kOwnChannelsRules,
  };
  static_assert(std::size(kRules) == kOperationKinds);
  return *kRules[static_cast<size_t>(kind)];
}

}  // namespace smp::program
