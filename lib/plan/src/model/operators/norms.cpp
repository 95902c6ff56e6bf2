#include "model/operators/operator_rules.h"

// Norms of each sample's features.
namespace smp::model {
namespace {

SampleShape output(const OperatorSpec& spec, const SampleShape& in) {
  check_flat(spec, in);
  return in;
}

ParameterSpec scale(int64_t size) {
  return {.name = "weight", .rows = size, .is_vector = true, .init = Init::kOnes};
}

std::vector<ParameterSpec> layer_norm(const OperatorSpec& /*spec*/, const SampleShape& in) {
  return {scale(in[0]), {.name = "bias", .rows = in[0], .is_vector = true, .init = Init::kZeros}};
}

std::vector<ParameterSpec> rms_norm(const OperatorSpec& /*spec*/, const SampleShape& in) {
  return {scale(in[0])};
}

}  // namespace

const OperatorRules kLayerNormRules = {.type = "layer_norm",
                                       .keys = {},
                                       .output = output,
                                       .parameters = layer_norm,
                                       .reads_all_channels = true};
const OperatorRules kRmsNormRules = {.type = "rms_norm",
                                     .keys = {},
                                     .output = output,
                                     .parameters = rms_norm,
                                     .reads_all_channels = true};

}  // namespace smp::model
