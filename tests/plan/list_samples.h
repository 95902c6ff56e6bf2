#pragma once

#include "smp/plan/model/operators.h"

// Models that are lists, for tests.
namespace smp {

inline ModelSpec list_model(SampleShape input, std::vector<OperatorSpec> operators) {
  ModelSpec model;
  model.name = "list";
  model.operators = std::move(operators);
  model.input_channels = input[0];
  model.input_height = input[1];
  model.input_width = input[2];
  model::set_list_sizes(model);
  return model;
}

// Every kind of operator; strides, paddings and windows that do not divide; six layers.
inline ModelSpec small_list() {
  using Kind = OperatorKind;
  return list_model({2, 11, 9},
                    {{.kind = Kind::kConv2d, .out = 5, .kernel = 3, .stride = 2, .padding = 2},
                     {.kind = Kind::kRelu},
                     {.kind = Kind::kMaxPool2d, .kernel = 3, .stride = 2, .padding = 1},
                     {.kind = Kind::kConv2d, .out = 6, .kernel = 2, .stride = 1},
                     {.kind = Kind::kAvgPool2d, .kernel = 2, .stride = 1},
                     {.kind = Kind::kGelu},
                     {.kind = Kind::kAdaptiveAvgPool2d, .out = 2},
                     {.kind = Kind::kFlatten},
                     {.kind = Kind::kLinear, .out = 13},
                     {.kind = Kind::kLayerNorm},
                     {.kind = Kind::kTanh},
                     {.kind = Kind::kLinear, .out = 12},
                     {.kind = Kind::kRmsNorm},
                     {.kind = Kind::kRelu},
                     {.kind = Kind::kDropout, .p = 0.3},
                     {.kind = Kind::kLinear, .out = 9},
                     {.kind = Kind::kTanh},
                     {.kind = Kind::kLinear, .out = 7}});
}

// The same without what takes another element where rounding changes which one is larger.
inline ModelSpec smooth_list() {
  std::vector<OperatorSpec> operators = small_list().operators;
  for (OperatorSpec& spec : operators) {
    if (spec.kind == OperatorKind::kRelu) spec.kind = OperatorKind::kGelu;
    if (spec.kind != OperatorKind::kMaxPool2d) continue;
    spec.kind = OperatorKind::kAvgPool2d;
    spec.stride = 1;
    spec.padding = 0;
  }
  return list_model({2, 11, 9}, std::move(operators));
}

// Leads with what has no parameters, and its first linear reads a view of the batch.
inline ModelSpec flat_list() {
  using Kind = OperatorKind;
  return list_model({1, 3, 4}, {{.kind = Kind::kFlatten},
                                {.kind = Kind::kLinear, .out = 8},
                                {.kind = Kind::kGelu},
                                {.kind = Kind::kLinear, .out = 3},
                                {.kind = Kind::kTanh}});
}

// What tensor ranks share from the images to the loss: channels that do not divide, dropped and
// pooled by the ranks that have them, flat features of several elements each, and logits.
inline ModelSpec cut_list() {
  using Kind = OperatorKind;
  return list_model({2, 9, 8}, {{.kind = Kind::kConv2d, .out = 7, .kernel = 3, .stride = 2},
                                {.kind = Kind::kDropout, .p = 0.2},
                                {.kind = Kind::kConv2d, .out = 6, .kernel = 2, .stride = 1},
                                {.kind = Kind::kGelu},
                                {.kind = Kind::kConv2d, .out = 5, .kernel = 1, .stride = 1},
                                {.kind = Kind::kAdaptiveAvgPool2d, .out = 2},
                                {.kind = Kind::kFlatten},
                                {.kind = Kind::kDropout, .p = 0.3},
                                {.kind = Kind::kLinear, .out = 11},
                                {.kind = Kind::kTanh},
                                {.kind = Kind::kLinear, .out = 10}});
}

}  // namespace smp
