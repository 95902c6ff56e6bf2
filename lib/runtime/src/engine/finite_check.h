#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "smp/plan/spec/plan.h"
#include "smp/runtime/parallel/parallelize.h"

namespace smp::engine {

// Finds what first was not finite in a step whose loss or norm is no number. Training itself never
// looks: nothing is updated by then, so the engine runs the step once more and shows every tensor
// to this. Used by the engine's thread; plan and model must outlive it.
class FiniteCheck {
 public:
  FiniteCheck(const Plan& plan, const parallel::ParallelModel& model)
      : plan_(plan), model_(model) {}

  // In the order in which a step comes to them.
  enum class Part : int64_t { kWeights, kForward, kBackward, kGradients, kNothing };

  void weights();  // of all parameters of this rank
  void forward(int64_t microbatch, int64_t layer, const std::vector<at::Tensor>& outputs);
  void backward(int64_t microbatch, int64_t layer, const std::vector<at::Tensor>& gradients);
  void gradients();  // of all parameters, reduced

  // The first of all ranks, in words: "first not finite: what the forward of layer 4 (layers.3)
  // makes on rank 3, microbatch 0". Collective over the world; the same on all ranks.
  std::string first_of_all() const;

 private:
  // Part, microbatch, key of the layer, parameter in it, rank: smaller came first. The key is the
  // layer, negative where the step goes from the last to the first.
  using Finding = std::array<int64_t, 5>;

  void keep(Part part, int64_t microbatch, int64_t layer_key, int64_t parameter);
  void keep_parameter(Part part, size_t index);
  std::string words_of(const Finding& finding) const;

  const Plan& plan_;
  const parallel::ParallelModel& model_;
  Finding first_{static_cast<int64_t>(Part::kNothing), 0, 0, 0, 0};
};

}  // namespace smp::engine
