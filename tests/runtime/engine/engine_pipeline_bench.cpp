#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>
#include <thread>

#include "parity/layouts.h"
#include "runtime/constant_samples.h"
#include "runtime/engine/fixed_time_layer.h"
#include "smp/comm/jobs/thread_group.h"
#include "smp/plan/layout/schedule_of_plan.h"
#include "smp/plan/spec/job_names.h"
#include "smp/runtime/engine/engine.h"
#include "time/pipeline_time.h"

// Idle share of the engine under each schedule, with layers that take a fixed time (they sleep),
// against the schedule's own simulation. Exit code 1 where they differ by more than 3 % of the
// step, or zb_h1 idles more than half as much as interleaved.
namespace smp {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kPass = 0.010;  // seconds of a block's forward, input gradients, weight gradients
constexpr double kTolerance = 0.03;
constexpr int kSteps = 3;

// When one rank computed.
struct Work {
  Clock::time_point begin = Clock::time_point::max(), end = Clock::time_point::min();
  double busy_s = 0;

  void pass(double seconds) {
    const Clock::time_point start = Clock::now();
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    const Clock::time_point stop = Clock::now();
    begin = std::min(begin, start);
    end = std::max(end, stop);
    busy_s += std::chrono::duration<double>(stop - start).count();
  }
};

// Mean over the stages of the share of the step in which they do not compute.
double measured_idle(const Plan& plan) {
  std::vector<Work> works(static_cast<size_t>(plan.degrees.world()));
  double best = 1;
  std::mutex mutex;
  for (int step = 0; step < kSteps; ++step) {
    works.assign(works.size(), {});
    jobs::run_ranks(static_cast<int>(works.size()), [&](comm::Communicator& world) {
      ledger::MemoryLedger ledger(world.rank(), 0);
      parallel::ParallelModel model = parallel::apply_parallelism(plan, world, ledger);
      Work& work = works[static_cast<size_t>(world.rank())];
      const auto layers = model.parameters->layout().layers;
      for (size_t i = 0; i < layers.size(); ++i) {
        model.layers[i] =
            std::make_unique<FixedTimeLayer>(layers[i], plan.job.model.hidden_size, kPass,
                                             [&work](double seconds) { work.pass(seconds); });
      }
      engine::Engine engine(plan, model, ledger,
                            constant_samples(plan.job.training.sequence_length));
      world.barrier("setup.bench")->wait();
      engine.step(0, 0.0);
    });
    Clock::time_point begin = works.front().begin, end = works.front().end;
    double busy = 0;
    for (const Work& work : works) {
      begin = std::min(begin, work.begin);
      end = std::max(end, work.end);
      busy += work.busy_s;
    }
    const double makespan = std::chrono::duration<double>(end - begin).count();
    best = std::min(best, 1 - busy / (makespan * static_cast<double>(works.size())));
  }
  return best;
}

double simulated_idle(const Plan& plan) {
  const schedule::ScheduleShape shape = layout::schedule_shape(plan);
  const int64_t blocks = plan.job.model.num_layers / (shape.stages * shape.chunks());
  const double pass = kPass * static_cast<double>(blocks);
  const bool splits = schedule::defers_weight_gradients(shape.kind);
  const time::ChunkCost cost{pass, splits ? pass : 2 * pass, splits ? pass : 0, 0, 0};
  const time::PipelineCosts costs(static_cast<size_t>(shape.stages),
                                  std::vector(static_cast<size_t>(shape.chunks()), cost));
  const time::PipelineTime time = time::simulate_pipeline(costs, shape);
  double idle = 0;
  for (const double seconds : time.idle_s) idle += seconds;
  return idle / (time.makespan_s * static_cast<double>(shape.stages));
}

int bench() {
  bool good = true;
  double interleaved = 0;
  fmt::print("4 stages, 8 microbatches, 8 blocks of 10 ms a pass; idle share of the step\n");
  fmt::print("{:<12} {:>10} {:>10}\n", "schedule", "simulated", "measured");
  for (const PipelineKind kind :
       {PipelineKind::kSimple, PipelineKind::kInterleaved, PipelineKind::kVirtual,
        PipelineKind::kZbH1, PipelineKind::kZbV}) {
    ModelSpec model = parity::gpt2_untied_model();
    model.num_layers = 8;
    parity::LayoutCase layout{"", {.pipeline = 4}, kind};
    layout.microbatches = 8;
    layout.virtual_stages = kind == PipelineKind::kVirtual || kind == PipelineKind::kZbV ? 2 : 1;
    Plan plan = parity::plan_of(model, layout, Precision::kFp32, "");
    plan.job.training.micro_batch = 1;
    plan.job.training.global_batch = 8;
    const double simulated = simulated_idle(plan);
    const double measured = measured_idle(plan);
    if (kind == PipelineKind::kInterleaved) interleaved = measured;
    const bool close = std::abs(measured - simulated) <= kTolerance;
    const bool halved = kind != PipelineKind::kZbH1 || measured <= interleaved / 2;
    good = good && close && halved;
    fmt::print("{:<12} {:>9.1f}% {:>9.1f}%{}{}\n", name_of(kind), 100 * simulated, 100 * measured,
               close ? "" : "  beyond 3 %", halved ? "" : "  more than half of interleaved");
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace smp

int main() { return smp::bench(); }
