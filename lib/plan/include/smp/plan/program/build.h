#pragma once

#include <list>
#include <utility>

#include "smp/plan/program/program.h"

namespace smp::program {

// Whether there is a program for the layer: whether the engine runs its kind.
bool has_programs(const ModelSpec& model);

// Whether two layers of a model have the same program, whose parameters are their own.
bool are_alike(const ModelSpec& model, const model::LayerSpec& a, const model::LayerSpec& b);

// What is made of the layers of a model, once for those that are alike. One thread at a time; the
// model must outlive it.
template <typename Made>
class OfAlikeLayers {
 public:
  explicit OfAlikeLayers(const ModelSpec& model) : model_(model) {}

  // What make() has made of the layer, or of one like it.
  template <typename Make>
  const Made& of(const model::LayerSpec& layer, const Make& make) {
    for (const auto& [known, made] : made_) {
      if (are_alike(model_, known, layer)) return made;
    }
    return made_.emplace_back(layer, make()).second;
  }

 private:
  const ModelSpec& model_;
  std::list<std::pair<model::LayerSpec, Made>> made_;  // whose elements stay where they are
};

// The program of one of the kinds that the engine runs: of one operation for each step of the
// mathematics, which the call's fusions (fusions.h) then join.
LayerProgram build(const ModelSpec& model, const model::LayerSpec& layer,
                   const model::LayerCall& call);

}  // namespace smp::program
