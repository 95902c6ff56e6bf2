#pragma once

#include <cstdint>

#include "parity/comparison.h"
#include "smp/runtime/engine/engine.h"

// Trains plans on samples that the test itself makes, with the ranks as threads.
namespace smp::parity {

// `steps` steps at the plan's learning rates. The weights are whole tensors by their own names, not
// Hugging Face's; memory and traffic are each rank's, as train() has them. On a GPU where
// `open_gpu` is given: of one rank, whose messages go nowhere.
Run run_engine(const Plan& plan, const engine::ReadSamples& samples, int64_t steps,
               const gpu::GpuLoader& open_gpu = {});

// The largest differences of two runs: of losses and gradient norms relative to each, of weights
// relative to the largest weight of the model.
struct EngineDifference {
  double loss = 0, grad_norm = 0, weight = 0;
};
EngineDifference engine_difference(const Run& run, const Run& reference);

// What a few tokens of a text add to a loss and its gradient, without masks and packing: tokens
// [0, n) are a sample of their own, and the sums are over its targets from `first` on.
struct TargetSums {
  double loss = 0;
  Weights gradients;

  void add(const TargetSums& other, double factor = 1);
};
TargetSums sums_of_targets(const ModelSpec& model, const Weights& initial,
                           const std::vector<int64_t>& tokens, const std::vector<int64_t>& targets,
                           int64_t first);

// What every plan of the model starts from.
Weights initial_weights(const ModelSpec& model);

// The gradients of a plan's first step: it must train by SGD at a learning rate of 1, without
// momentum, decay and clipping.
Weights gradients_of(const Plan& plan, const Weights& initial, const engine::ReadSamples& samples,
                     Run* run = nullptr);
void take_plain_steps(Plan& plan);  // makes it such a plan

// Largest difference of two sets of gradients, relative to the largest gradient.
double gradient_difference(const Weights& gradients, const Weights& expected);

}  // namespace smp::parity
