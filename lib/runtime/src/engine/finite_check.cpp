#include "engine/finite_check.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "parameters/owned_part.h"
#include "smp/plan/model/layers.h"

namespace smp::engine {
namespace {

bool is_finite(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_floating_point()) return true;
  return tensor.isfinite().all().item<bool>();
}

bool all_finite(const std::vector<at::Tensor>& tensors) {
  return std::all_of(tensors.begin(), tensors.end(), is_finite);
}

// Calls body(index in the layout, bucket's part, first element there, count) for the elements of
// each parameter that this rank owns.
template <typename Body>
void for_each_owned(const parameters::FlatParameters& parameters, const Body& body) {
  const layout::RankLayout& layout = parameters.layout();
  for (size_t bucket = 0; bucket < layout.buckets.size(); ++bucket) {
    const parameters::OwnedPart held = parameters.owned(static_cast<int64_t>(bucket));
    for (size_t i = 0; i < layout.parameters.size(); ++i) {
      const layout::PlacedParameter& parameter = layout.parameters[i];
      const int64_t begin = std::max(parameter.offset, held.begin);
      const int64_t end = std::min(parameter.offset + parameter.box.size(), held.end);
      if (begin < end) body(i, held, begin - held.begin, end - begin);
    }
  }
}

}  // namespace

void FiniteCheck::keep(Part part, int64_t microbatch, int64_t layer_key, int64_t parameter) {
  first_ = std::min(first_, Finding{static_cast<int64_t>(part), microbatch, layer_key, parameter,
                                    model_.groups->world().rank()});
}

void FiniteCheck::keep_parameter(Part part, size_t index) {
  const int64_t layer = model_.parameters->layout().parameters[index].layer;
  const int64_t in_layer = static_cast<int64_t>(index) - model_.parameters->range_of(layer).first;
  keep(part, 0, part == Part::kWeights ? layer : -layer, in_layer);
}

void FiniteCheck::weights() {
  for_each_owned(*model_.parameters, [&](size_t index, const parameters::OwnedPart& held,
                                         int64_t begin, int64_t count) {
    if (!is_finite(held.weights.narrow(0, begin, count))) keep_parameter(Part::kWeights, index);
  });
}

void FiniteCheck::gradients() {
  for_each_owned(*model_.parameters, [&](size_t index, const parameters::OwnedPart& held,
                                         int64_t begin, int64_t count) {
    if (!is_finite(held.gradients.narrow(0, begin, count))) keep_parameter(Part::kGradients, index);
  });
}

void FiniteCheck::forward(int64_t microbatch, int64_t layer,
                          const std::vector<at::Tensor>& outputs) {
  if (!all_finite(outputs)) keep(Part::kForward, microbatch, layer, 0);
}

void FiniteCheck::backward(int64_t microbatch, int64_t layer,
                           const std::vector<at::Tensor>& gradients) {
  if (!all_finite(gradients)) keep(Part::kBackward, microbatch, -layer, 0);
}

std::string FiniteCheck::first_of_all() const {
  comm::Communicator& world = model_.groups->world();
  std::vector<Finding> all(static_cast<size_t>(world.size()));
  world
      .all_gather(first_.data(), all.data(), static_cast<int64_t>(first_.size()), DType::kI64,
                  "step.not_finite")
      ->wait();
  return words_of(*std::min_element(all.begin(), all.end()));
}

std::string FiniteCheck::words_of(const Finding& finding) const {
  const auto [part, microbatch, layer_key, parameter, rank] = finding;
  const model::LayerSpec layer =
      model::layers_of(plan_.job.model).at(static_cast<size_t>(std::abs(layer_key)));
  const auto parameter_name = [&, index = parameter] {
    return model::parameters_of(plan_.job.model, layer).at(static_cast<size_t>(index)).name;
  };
  const std::string where = fmt::format("on rank {}", rank);
  switch (static_cast<Part>(part)) {
    case Part::kWeights:
      return fmt::format("first non-finite value: the weights of {} {}, before this step",
                         parameter_name(), where);
    case Part::kForward:
      return fmt::format(
          "first non-finite value: the forward output of layer {} ({}) {}, microbatch {}",
          layer.index, layer.name, where, microbatch);
    case Part::kBackward:
      return fmt::format(
          "first non-finite value: the backward output of layer {} ({}) {}, microbatch {}",
          layer.index, layer.name, where, microbatch);
    case Part::kGradients:
      return fmt::format("first non-finite value: the gradient of {} {}", parameter_name(), where);
    case Part::kNothing: break;
  }
  return "all values were finite on all ranks when the step was repeated";
}

}  // namespace smp::engine
