#pragma once

#include <vector>

#include "functions/tensors.h"
#include "smp/runtime/layer.h"

namespace smp {

// A layer's parameters by their names within the layer ("attention.q.weight").
class ParameterViews {
 public:
  ParameterViews(const ModelSpec& model, const LayerSpec& layer, LayerParameters parameters);

  Parameter at(const std::string& name) const;  // undefined when the layer has none of that name
  // The neighbours from `first` to `last`, as one parameter; undefined when there is no `first`.
  Parameter joined(const std::string& first, const std::string& last) const;
  Parameter tied() const;  // the token embedding that a tied head gets as its last entry

  int64_t layer() const { return layer_; }  // its index in the model

  Linear linear(const std::string& name) const;
  Norm norm(const std::string& name, double epsilon) const;

 private:
  int index_of(const std::string& name) const;  // -1 when there is none

  int64_t layer_;
  std::vector<std::string> names_;
  LayerParameters parameters_;
};

std::unique_ptr<Layer> make_embedding(const ModelSpec& model, const ParameterViews& parameters,
                                      const TensorParallel& group);
std::unique_ptr<Layer> make_block(const ModelSpec& model, const LayerSpec& layer,
                                  const ParameterViews& parameters, const TensorParallel& group);
std::unique_ptr<Layer> make_cross_block(const ModelSpec& model, const LayerSpec& layer,
                                        const ParameterViews& parameters,
                                        const TensorParallel& group);
std::unique_ptr<Layer> make_operator_list(const ModelSpec& model, const LayerSpec& layer,
                                          const ParameterViews& parameters,
                                          const TensorParallel& group);
std::unique_ptr<Layer> make_head(const ModelSpec& model, const ParameterViews& parameters,
                                 const TensorParallel& group);

}  // namespace smp
