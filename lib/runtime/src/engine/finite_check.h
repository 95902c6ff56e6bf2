#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "smp/plan/spec/plan.h"
#include "smp/runtime/parallel/parallelize.h"

namespace smp::engine {

// Finds the first tensor that is not finite in a step whose loss or gradient norm is not finite.
// Such a step updates nothing, so the engine runs it again and passes every tensor to this check.
// Normal steps look at no tensor. Used by the engine's thread; plan and model must outlive it.
class FiniteCheck {
 public:
  FiniteCheck(const Plan& plan, const parallel::ParallelModel& model)
      : plan_(plan), model_(model) {}

  // In the order of a step.
  enum class Part : int64_t { kWeights, kForward, kBackward, kGradients, kNothing };

  void weights();  // all parameters of this rank
  void forward(int64_t microbatch, int64_t layer, const std::vector<at::Tensor>& outputs);
  void backward(int64_t microbatch, int64_t layer, const std::vector<at::Tensor>& gradients);
  void gradients();  // all reduced gradients of this rank

  // A text about the first finding of all ranks: "first non-finite value: the forward output of
  // layer 4 (layers.3) on rank 3, microbatch 0". Collective over the world; the same on all ranks.
  std::string first_of_all() const;

 private:
  // Part, microbatch, key of the layer, parameter in it, rank. The smallest finding came first. The
  // key is the layer's index, negative for backward parts, which go from the last layer to the
  // first.
  using Finding = std::array<int64_t, 5>;

  void keep(Part part, int64_t microbatch, int64_t layer_key, int64_t parameter);
  void keep_parameter(Part part, size_t index);
  std::string words_of(const Finding& finding) const;

  const Plan& plan_;
  const parallel::ParallelModel& model_;
  Finding first_{static_cast<int64_t>(Part::kNothing), 0, 0, 0, 0};
};

}  // namespace smp::engine
