#include "parity/composition_run.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "parity/rounding.h"
#include "scratch_folder.h"

namespace smp::parity {
namespace {

constexpr int64_t kSteps = 5, kSaved = 2;

// A step at this rate leaves weights of which nearly all is gradient: 10 bits fewer are lost.
constexpr double kRate = 1024;

// Momentum changes nothing in a first step, and offloading needs an optimizer with a state.
Plan plain_step(Plan plan, double rate) {
  OptimizerSpec& optimizer = plan.job.training.optimizer;
  optimizer.kind = OptimizerKind::kSgd;
  optimizer.learning_rate = optimizer.min_learning_rate = rate;
  optimizer.warmup_steps = 0;
  optimizer.weight_decay = 0;
  return plan;
}

// A correction bias has no gradient: it is moved by the loads of experts.
bool has_gradient(const std::string& name) { return !name.ends_with("e_score_correction_bias"); }

double distance(const Weights& weights, const Weights& others) {
  double squares = 0;
  for (const auto& [name, values] : weights) {
    if (!has_gradient(name)) continue;
    const std::vector<double>& other = others.at(name);
    for (size_t i = 0; i < values.size(); ++i) {
      squares += (values[i] - other[i]) * (values[i] - other[i]);
    }
  }
  return std::sqrt(squares);
}

// What the engine says of clipping (step_update.cpp), as torch.nn.utils.clip_grad_norm_ does it.
double clipped(double norm, double limit) {
  return limit > 0 ? norm * std::min(1.0, limit / (norm + 1e-6)) : norm;
}

double relative(double value, double expected) { return std::abs(value - expected) / expected; }

// The end of a run that another one repeats.
Run from_step(Run run, int64_t step) {
  run.result.losses.erase(run.result.losses.begin(), run.result.losses.begin() + step);
  run.result.grad_norms.erase(run.result.grad_norms.begin(), run.result.grad_norms.begin() + step);
  return run;
}

double tokens_of(const Plan& plan) {
  const TrainingSpec& training = plan.job.training;
  return static_cast<double>(*training.global_batch * training.sequence_length);
}

// Of all gradients together.
double gradients_off(const Run& plain, const Weights& initial, const Run& expected) {
  return distance(plain.weights, expected.weights) / distance(initial, expected.weights);
}

}  // namespace

Plan CompositionRuns::plan_of(const Combination& combination, const LayoutCase& layout,
                              Precision precision) const {
  Plan plan = combination.plan_of(layout, precision, data_path_);
  if (precision != Precision::kFp64) {
    plan.job.training.save_weights_as = Precision::kFp32;  // as they are read
  }
  return plan;
}

const CompositionRuns::Reference& CompositionRuns::reference_of(const Combination& combination) {
  if (reference_.initial.empty() || reference_.trained != combination.trained()) {
    const Plan plan = plan_of(combination, combination.one_rank(), Precision::kFp64);
    reference_ = {combination.trained(), run(plain_step(plan, 0), 1).weights, run(plan, kSteps),
                  run(plain_step(plan, kRate), 1)};
    for (const double norm : reference_.five.result.grad_norms) {
      REQUIRE(norm > combination.layout.gradient_clipping);  // so that it clips
    }
  }
  return reference_;
}

CompositionRuns::Allowed CompositionRuns::allowed_of(const Combination& combination,
                                                     Precision precision) {
  if (precision == Precision::kFp64) {
    return {tolerance::kParityF64.loss, tolerance::kParityF64.grad_norm,
            tolerance::kParityF64.weight};
  }
  // A ReLU or a limit decides otherwise where rounding moves its input over the edge, and a
  // gradient jumps. Another layout rounds other numbers, but as many: twice what one rank is off.
  const Reference& reference = reference_of(combination);
  const Plan plan = plan_of(combination, combination.one_rank(), precision);
  const tolerance::Parity own = parity::differences(run(plan, kSteps), reference.five);
  const double own_gradient =
      gradients_off(run(plain_step(plan, kRate), 1), reference.initial, reference.plain);
  if (precision == Precision::kFp32) {
    return {std::max(tolerance::kParityF32.loss, 2 * own.loss),
            std::max(tolerance::kParityF32.grad_norm, 2 * own.grad_norm),
            std::max(tolerance::kF32Gradient, 2 * own_gradient)};
  }
  const ModelSpec model = combination.model();
  const double loss = narrow_loss(precision, model);
  const double gradient = narrow_gradient(precision, model, tokens_of(plan));
  // A norm moves by no more than the gradients; by as much where one token goes to another expert.
  const double norm = model.num_experts > 0 ? gradient : loss;
  return {std::max(loss, 2 * own.loss), std::max(norm, 2 * own.grad_norm),
          std::max(gradient, 2 * own_gradient)};
}

std::vector<Difference> CompositionRuns::differences(const Combination& combination,
                                                     const Combination& resuming,
                                                     Precision precision) {
  const Reference& reference = reference_of(combination);
  const Allowed allowed = allowed_of(combination, precision);
  const bool is_fp64 = precision == Precision::kFp64;
  std::vector<Difference> found;
  // AdamW's first updates divide a gradient by its own size, so rounding decides the sign of small
  // ones: weights are compared in fp64.
  const auto add_steps = [&](const std::string& prefix, const Run& one, const Run& expected) {
    const tolerance::Parity worst = parity::differences(one, expected);
    found.push_back({prefix + "loss", worst.loss, allowed.loss});
    found.push_back({prefix + "norm", worst.grad_norm, allowed.grad_norm});
    if (!is_fp64) return;
    found.push_back({prefix + "weights", worst.weight, tolerance::kParityF64.weight});
    found.push_back(
        {prefix + "key biases", worst.key_bias_absolute, tolerance::kParityF64.key_bias_absolute});
  };

  const ScratchFolder folder;
  Plan plan = plan_of(combination, combination.layout, precision);
  plan.job.training.checkpoint.every_steps = kSaved;
  plan.job.training.checkpoint.keep = kSteps;
  add_steps("", run_in(folder.path(), plan, kSteps, 0), reference.five);

  add_steps("resumed ",
            run_in(folder.path(), plan_of(combination, resuming.layout, precision), kSteps, kSaved),
            from_step(reference.five, kSaved));

  const Run plain = run(plain_step(plan, kRate), 1);
  const double norm = plain.result.grad_norms.front();
  found.push_back({"clipped norm",
                   relative(distance(plain.weights, reference.initial) / kRate,
                            clipped(norm, combination.layout.gradient_clipping)),
                   allowed.grad_norm});
  if (is_fp64) {
    const tolerance::Parity worst = parity::differences(plain, reference.plain);
    found.push_back({"gradients", worst.weight, allowed.gradient});
    found.push_back({"gradients of key biases", worst.key_bias_absolute / kRate, allowed.gradient});
    return found;
  }
  found.push_back(
      {"gradients", gradients_off(plain, reference.initial, reference.plain), allowed.gradient});
  return found;
}

}  // namespace smp::parity
