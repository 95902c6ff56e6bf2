#pragma once

#include "smp/plan/model/operators.h"

// The kinds, each in its file, and what they share. Only the operators' own sources include this.
namespace smp::model {

extern const OperatorRules kConv2dRules, kLinearRules, kReluRules, kGeluRules, kTanhRules,
    kMaxPool2dRules, kAvgPool2dRules, kAdaptiveAvgPool2dRules, kFlattenRules, kLayerNormRules,
    kRmsNormRules, kDropoutRules;

// Refuse what is no image, or no flat list of features.
void check_image(const OperatorSpec& spec, const SampleShape& in);
void check_flat(const OperatorSpec& spec, const SampleShape& in);

// A matrix drawn as torch.nn.Linear and Conv2d draw it, and its bias: uniform within +-1/sqrt(cols)
// (kaiming_uniform_ with a = sqrt(5)), which has this deviation.
std::vector<ParameterSpec> matrix_and_bias(int64_t rows, int64_t cols);

// Where the `count` sums of an image are taken: of 16-bit elements beside them, in fp32.
int64_t sums_bytes(DType dtype, int64_t count);

}  // namespace smp::model
