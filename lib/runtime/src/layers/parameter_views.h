#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "smp/runtime/layers/layer.h"

namespace smp::layers {

// A parameter of one rank and the view to which its gradient is added; a vector, or a matrix
// [out, in].
struct Parameter {
  at::Tensor weight;
  at::Tensor gradient;
};

// A layer's parameters by their names within the layer ("attention.q.weight").
class ParameterViews {
 public:
  ParameterViews(const ModelSpec& model, const model::LayerSpec& layer, LayerParameters parameters);

  // The adjacent parameters from `first` to `last` as one.
  Parameter joined(const std::string& first, const std::string& last) const;
  Parameter tied() const;  // the token embedding that a tied head gets as its last entry

  DType dtype() const;
  at::Device device() const;

 private:
  int index_of(const std::string& name) const;  // -1 when there is none

  std::vector<std::string> names_;
  LayerParameters parameters_;
};

}  // namespace smp::layers
