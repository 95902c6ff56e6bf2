#pragma once

#include "smp/plan/model/operators.h"

// The kinds of operators, each in its file, and the functions that they share. Only the operators'
// own sources include this.
namespace smp::model {

extern const OperatorRules kConv2dRules, kLinearRules, kReluRules, kGeluRules, kTanhRules,
    kMaxPool2dRules, kAvgPool2dRules, kAdaptiveAvgPool2dRules, kFlattenRules, kLayerNormRules,
    kRmsNormRules, kDropoutRules;

// Refuse a shape that is not an image, or not a flat list of features.
void check_image(const OperatorSpec& spec, const SampleShape& in);
void check_flat(const OperatorSpec& spec, const SampleShape& in);

// A matrix and its bias with the initial values of torch.nn.Linear and Conv2d: uniform within
// +-1/sqrt(cols) (kaiming_uniform_ with a = sqrt(5)), which has this deviation.
std::vector<ParameterSpec> matrix_and_bias(int64_t rows, int64_t cols);

}  // namespace smp::model
