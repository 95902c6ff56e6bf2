#pragma once

#include <vector>

#include "kernels/tensors.h"
#include "smp/runtime/layers/layer.h"

namespace smp::layers {

// A layer's parameters by their names within the layer ("attention.q.weight").
class ParameterViews {
 public:
  ParameterViews(const ModelSpec& model, const model::LayerSpec& layer, LayerParameters parameters);

  kernels::Parameter at(
      const std::string& name) const;  // undefined when the layer has none of that name
  // The adjacent parameters from `first` to `last` as one; undefined when there is no `first`.
  kernels::Parameter joined(const std::string& first, const std::string& last) const;
  kernels::Parameter tied() const;  // the token embedding that a tied head gets as its last entry

  int64_t layer() const { return layer_; }  // its index in the model

  kernels::Linear linear(const std::string& name) const;
  kernels::Norm norm(const std::string& name, double epsilon) const;

 private:
  int index_of(const std::string& name) const;  // -1 when there is none

  int64_t layer_;
  std::vector<std::string> names_;
  LayerParameters parameters_;
};

std::unique_ptr<Layer> make_embedding(const ModelSpec& model, const ParameterViews& parameters,
                                      const kernels::TensorParallel& group);
std::unique_ptr<Layer> make_block(const ModelSpec& model, const model::LayerSpec& layer,
                                  const ParameterViews& parameters,
                                  const kernels::TensorParallel& group);
std::unique_ptr<Layer> make_cross_block(const ModelSpec& model, const model::LayerSpec& layer,
                                        const ParameterViews& parameters,
                                        const kernels::TensorParallel& group);
std::unique_ptr<Layer> make_operator_list(const ModelSpec& model, const model::LayerSpec& layer,
                                          const ParameterViews& parameters,
                                          const kernels::TensorParallel& group);
std::unique_ptr<Layer> make_head(const ModelSpec& model, const ParameterViews& parameters,
                                 const kernels::TensorParallel& group);

}  // namespace smp::layers
