#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "constant_samples.h"
#include "fixed_time_layer.h"
#include "parity/layouts.h"
#include "smp/comm/thread_group.h"
#include "smp/runtime/engine.h"

// What the engine adds to a layer: a step of one rank whose layers compute nothing, by their
// number. Prints microseconds a layer: its actions, its calls, two small tensors, its part of the
// update.
namespace smp {
namespace {

constexpr int64_t kShort = 8, kLong = 136;
constexpr int kSteps = 400;

double least_step_s(int64_t blocks) {
  ModelSpec model = parity::gpt2_untied_model();
  model.num_layers = blocks;
  Plan plan = parity::plan_of(model, {"", {}, PipelineKind::kSimple}, Precision::kFp32, "");
  std::vector<double> seconds;
  run_ranks(1, [&](Communicator& world) {
    MemoryLedger ledger(0, 0);
    ParallelModel parallel = apply_parallelism(plan, world, ledger);
    const auto layers = parallel.parameters->layout().layers;
    for (size_t i = 0; i < layers.size(); ++i) {
      parallel.layers[i] = std::make_unique<FixedTimeLayer>(layers[i], plan.job.model.hidden_size,
                                                            0.0, [](double /*seconds*/) {});
    }
    Engine engine(plan, parallel, ledger, constant_samples(plan.job.training.sequence_length));
    for (int64_t step = 0; step < kSteps; ++step) {
      const auto start = std::chrono::steady_clock::now();
      engine.step(step, 0.0);
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
      seconds.push_back(spent.count() / static_cast<double>(*plan.job.training.microbatches));
    }
  });
  return *std::min_element(seconds.begin(), seconds.end());
}

}  // namespace
}  // namespace smp

int main() {
  const double cost =
      (smp::least_step_s(smp::kLong) - smp::least_step_s(smp::kShort)) / (smp::kLong - smp::kShort);
  fmt::print("{:.2f}\n", 1e6 * cost);
}
