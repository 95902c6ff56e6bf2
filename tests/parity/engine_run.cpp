#include "parity/engine_run.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>
#include <utility>

#include "gpu/gpu.h"
#include "parameters/owned_part.h"
#include "smp/comm/jobs/thread_group.h"
#include "smp/plan/layout/layout.h"
#include "smp/runtime/ledger/memory_ledger.h"
#include "smp/runtime/optim/learning_rate.h"
#include "smp/runtime/parallel/parallelize.h"
#include "worst.h"

namespace smp::parity {
namespace {

// This rank's share of the weights, into whole tensors.
void collect(const parameters::FlatParameters& parameters, Weights& all) {
  const layout::RankLayout& layout = parameters.layout();
  for (size_t bucket = 0; bucket < layout.buckets.size(); ++bucket) {
    const parameters::OwnedPart held = parameters.owned(static_cast<int64_t>(bucket));
    const at::Tensor values = held.weights.to(at::kDouble).contiguous();
    for (const layout::PlacedParameter& parameter : layout.parameters) {
      std::vector<double>& whole = all[parameter.spec.name];
      whole.resize(static_cast<size_t>(parameter.spec.rows * parameter.spec.cols));
      const int64_t begin = std::max(parameter.offset, held.begin);
      const int64_t end = std::min(parameter.offset + parameter.box.size(), held.end);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t at = i - parameter.offset, cols = parameter.box.cols();
        const int64_t row = parameter.box.row_begin + at / cols;
        const int64_t col = parameter.box.col_begin + at % cols;
        whole[static_cast<size_t>(row * parameter.spec.cols + col)] =
            values.const_data_ptr<double>()[i - held.begin];
      }
    }
  }
}

double largest(const Weights& tensors) {
  double most = 0;
  for (const auto& [name, values] : tensors) {
    for (const double value : values) most = std::max(most, std::abs(value));
  }
  return most;
}

double largest_difference(const Weights& a, const Weights& b) {
  double most = a.size() == b.size() ? 0 : NAN;
  for (const auto& [name, values] : b) {
    for (size_t i = 0; i < values.size(); ++i) {
      most = smp::testing::worst_of(most, std::abs(a.at(name).at(i) - values[i]));
    }
  }
  return most;
}

}  // namespace

Run run_engine(const Plan& plan, const engine::ReadSamples& samples, int64_t steps,
               const gpu::GpuLoader& open_gpu) {
  Run run;
  run.result.run.steps = steps;
  run.result.ranks.resize(static_cast<size_t>(plan.degrees.world()));
  std::mutex mutex;
  jobs::run_ranks(static_cast<int>(plan.degrees.world()), [&](comm::Communicator& world) {
    ledger::install_counting_allocator();
    ledger::MemoryLedger ledger(world.rank(), 0);
    const ledger::LedgerScope scope(ledger);
    parallel::ParallelModel model =
        parallel::apply_parallelism(plan, world, ledger, open_gpu ? open_gpu({}) : nullptr);
    std::optional<ledger::LedgerScope> on_host;
    if (open_gpu) on_host.emplace(*model.host);
    engine::Engine engine(plan, model, ledger, samples);
    std::vector<engine::StepResult> done;
    const TrainingSpec& training = plan.job.training;
    for (int64_t step = 0; step < steps; ++step) {
      done.push_back(
          engine.step(step, optim::learning_rate_at(training.optimizer, training.steps, step)));
    }
    engine.wait_all();
    const std::scoped_lock lock(mutex);
    record::RankMeasurements& facts = run.result.ranks[static_cast<size_t>(world.rank())];
    facts.rank = world.rank();
    facts.peak = ledger.peak();
    facts.host_peak_bytes = model.host->peak().bytes;
    facts.traffic = model.groups->traffic();
    collect(*model.parameters, run.weights);
    if (world.rank() != 0) return;
    for (const engine::StepResult& step : done) {
      run.result.losses.push_back(step.loss);
      run.result.grad_norms.push_back(step.grad_norm);
    }
  });
  return run;
}

EngineDifference engine_difference(const Run& run, const Run& reference) {
  const auto worst_of_steps = [](const std::vector<double>& values,
                                 const std::vector<double>& expected) {
    double most = values.size() == expected.size() ? 0 : NAN;
    for (size_t i = 0; i < expected.size(); ++i) {
      most = smp::testing::worst_of(most,
                                    std::abs(values.at(i) - expected[i]) / std::abs(expected[i]));
    }
    return most;
  };
  return {worst_of_steps(run.result.losses, reference.result.losses),
          worst_of_steps(run.result.grad_norms, reference.result.grad_norms),
          largest_difference(run.weights, reference.weights) / largest(reference.weights)};
}

void take_plain_steps(Plan& plan) {
  OptimizerSpec& optimizer = plan.job.training.optimizer;
  optimizer.kind = OptimizerKind::kSgd;
  optimizer.learning_rate = optimizer.min_learning_rate = 1;
  optimizer.warmup_steps = 0;
  optimizer.momentum = optimizer.weight_decay = optimizer.gradient_clipping = 0;
}

Weights initial_weights(const ModelSpec& model) {
  return run_engine(plan_of(model, {"one rank", {}}, Precision::kFp64, ""), {}, 0).weights;
}

Weights gradients_of(const Plan& plan, const Weights& initial, const engine::ReadSamples& samples,
                     Run* run) {
  Weights gradients = initial;
  Run after = run_engine(plan, samples, 1);
  for (auto& [name, values] : gradients) {
    for (size_t i = 0; i < values.size(); ++i) values[i] -= after.weights.at(name)[i];
  }
  if (run != nullptr) *run = std::move(after);
  return gradients;
}

double gradient_difference(const Weights& gradients, const Weights& expected) {
  return largest_difference(gradients, expected) / largest(expected);
}

void TargetSums::add(const TargetSums& other, double factor) {
  loss += factor * other.loss;
  for (const auto& [name, values] : other.gradients) {
    std::vector<double>& sums = gradients[name];
    sums.resize(values.size());
    for (size_t i = 0; i < values.size(); ++i) sums[i] += factor * values[i];
  }
}

TargetSums sums_of_targets(const ModelSpec& model, const Weights& initial,
                           const std::vector<int64_t>& tokens, const std::vector<int64_t>& targets,
                           int64_t first) {
  const auto of_first = [&](int64_t count) {
    LayoutCase one{"one rank", {}};
    one.microbatches = 1;
    Plan plan = plan_of(model, one, Precision::kFp64, "");
    plan.job.training.sequence_length = count;
    plan.job.training.micro_batch = plan.job.training.global_batch = 1;
    take_plain_steps(plan);
    Run run;
    TargetSums sums;
    sums.gradients = gradients_of(
        plan, initial,
        [&](int64_t, int64_t, int64_t, const engine::SampleBuffers& out) {
          std::copy_n(tokens.begin(), count, out.integers(model::BatchField::kTokens));
          std::copy_n(targets.begin(), count, out.integers(model::BatchField::kTargets));
        },
        &run);
    sums.loss = run.result.losses.front();
    TargetSums scaled;
    scaled.add(sums, static_cast<double>(count));
    return scaled;
  };
  TargetSums sums = of_first(static_cast<int64_t>(tokens.size()));
  if (first > 0) sums.add(of_first(first), -1);
  return sums;
}

}  // namespace smp::parity
