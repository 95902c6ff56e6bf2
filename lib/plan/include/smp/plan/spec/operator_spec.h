#pragma once

#include <cstdint>
#include <vector>

// The entries of a model that a job file writes as a list (model.layers), like DeepSpeed's
// PipelineModule(layers). operators.h has the rules of each kind.
namespace smp {

enum class OperatorKind {
  kConv2d,
  kLinear,
  kRelu,
  kGelu,
  kTanh,
  kMaxPool2d,
  kAvgPool2d,
  kAdaptiveAvgPool2d,
  kFlatten,
  kLayerNorm,
  kRmsNorm,
  kDropout,
};

struct OperatorSpec {
  OperatorKind kind = OperatorKind::kRelu;
  int64_t out = 0;  // channels of a convolution, features of a linear, rows and columns of an
                    // adaptive pooling
  int64_t kernel = 0;
  int64_t stride = 0;
  int64_t padding = 0;
  double p = 0;  // of a dropout: the share of elements that go
  bool operator==(const OperatorSpec&) const = default;
};

// One sample's tensor, without the batch: {channels, height, width} or {features}.
using SampleShape = std::vector<int64_t>;

}  // namespace smp
