#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <string>
#include <vector>

#include "parity/layouts.h"
#include "runtime/constant_samples.h"
#include "runtime/engine/fixed_time_layer.h"
#include "smp/comm/jobs/thread_group.h"
#include "smp/plan/base/check.h"
#include "smp/plan/runinfo/step_trace.h"
#include "smp/runtime/engine/engine.h"

// What the engine adds to a layer: a step of one rank whose layers compute nothing, by their
// number. Prints microseconds a layer: its actions, its calls, two small tensors, its part of the
// update. With the word "traced" of steps that are traced, with "idle" of a run that traces other
// steps.
namespace smp {
namespace {

constexpr int64_t kShort = 8, kLong = 136;
constexpr int kSteps = 400;
constexpr int kTracedSteps = 100;  // whose slices a rank keeps

enum class Tracing { kNone, kIdle, kOn };

double least_step_s(int64_t blocks, Tracing tracing) {
  ModelSpec model = parity::gpt2_untied_model();
  model.num_layers = blocks;
  Plan plan = parity::plan_of(model, {"", {}, PipelineKind::kSimple}, Precision::kFp32, "");
  std::vector<double> seconds;
  jobs::run_ranks(1, [&](comm::Communicator& world) {
    ledger::MemoryLedger ledger(0, 0);
    runinfo::StepTracer tracer;
    tracer.reserve(runinfo::StepTracer::kMostSlices);
    parallel::ParallelModel parallel = parallel::apply_parallelism(plan, world, ledger);
    const auto layers = parallel.parameters->layout().layers;
    for (size_t i = 0; i < layers.size(); ++i) {
      parallel.layers[i] = std::make_unique<FixedTimeLayer>(layers[i], plan.job.model.hidden_size,
                                                            0.0, [](double /*seconds*/) {});
    }
    if (tracing != Tracing::kNone) parallel.groups->trace(tracer);
    engine::Engine engine(plan, parallel, ledger,
                          constant_samples(plan.job.training.sequence_length));
    const int steps = tracing == Tracing::kOn ? kTracedSteps : kSteps;
    for (int64_t step = 0; step < steps; ++step) {
      if (tracing == Tracing::kOn) tracer.begin_step(step + 1);
      const auto start = std::chrono::steady_clock::now();
      engine.step(step, 0.0);
      if (tracing == Tracing::kOn) tracer.end_step();
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
      seconds.push_back(spent.count() / static_cast<double>(*plan.job.training.microbatches));
    }
    SMP_CHECK(!tracer.cut());
  });
  return *std::min_element(seconds.begin(), seconds.end());
}

}  // namespace
}  // namespace smp

int main(int argc, char** argv) {
  // As smp-worker does: freed memory stays, whatever lies above it.
  ::mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  ::mallopt(M_TOP_PAD, 64 << 20);
  const std::string word = argc > 1 ? argv[1] : "";
  const auto tracing = word == "traced" ? smp::Tracing::kOn
                       : word == "idle" ? smp::Tracing::kIdle
                                        : smp::Tracing::kNone;
  const double cost =
      (smp::least_step_s(smp::kLong, tracing) - smp::least_step_s(smp::kShort, tracing)) /
      (smp::kLong - smp::kShort);
  fmt::print("{:.2f}\n", 1e6 * cost);
}
