#include "runtime/engine/exposed_communication.h"

#include <memory>
#include <mutex>

#include "parity/layouts.h"
#include "runtime/constant_samples.h"
#include "runtime/engine/fixed_time_layer.h"
#include "runtime/paced_communicator.h"
#include "smp/comm/jobs/thread_group.h"
#include "smp/plan/layout/schedule_of_plan.h"
#include "smp/plan/layout/traffic.h"
#include "smp/plan/schedule/schedule.h"
#include "smp/runtime/engine/engine.h"

namespace smp {
namespace {

constexpr int64_t kRanks = 4;
constexpr int64_t kWarmUpSteps = 2, kSteps = 4;
constexpr double kCommunicationPerCompute = 0.5;

double compute_s(const Plan& plan, double pass_s) {
  return 3 * pass_s *
         static_cast<double>(plan.job.model.num_layers * *plan.job.training.microbatches);
}

// At which all messages of a step take the given time.
double bandwidth(const Plan& plan, double seconds) {
  int64_t bytes = 0, calls = 0;
  for (const layout::Traffic& one : layout::step_traffic(plan, 0)) {
    bytes += one.wire_bytes;
    calls += one.calls;
  }
  return static_cast<double>(bytes) / (seconds - kLinkLatency * static_cast<double>(calls));
}

}  // namespace

double link_bytes_per_s(const Plan& plan, const ExposureOptions& options) {
  return bandwidth(plan, kCommunicationPerCompute * compute_s(plan, options.pass_s));
}

Plan exposure_plan(Sharding sharding, int64_t replicas) {
  ModelSpec model = parity::gpt2_untied_model();
  model.num_layers = 22;
  parity::LayoutCase layout;
  layout.sharding = sharding;
  if (sharding == Sharding::kNone) {
    layout.degrees.replica = kRanks;
  } else {
    layout.degrees.shard = kRanks / replicas;
    layout.degrees.replica = replicas;
  }
  layout.microbatches = 1;
  Plan plan = parity::plan_of(model, layout, Precision::kFp32, "");
  // Two blocks: 25 MiB, the default, are as much of a model of 80 M parameters.
  plan.job.parallel.bucket_bytes = 200 << 10;
  return plan;
}

ExposedCommunication exposed_communication(const Plan& plan, const ExposureOptions& options) {
  const double computing_s = compute_s(plan, options.pass_s);
  const double rate = link_bytes_per_s(plan, options);
  const auto ranks = static_cast<double>(plan.degrees.world());
  ExposedCommunication mean{.compute_s = computing_s};
  std::mutex mutex;
  jobs::run_ranks(static_cast<int>(plan.degrees.world()), [&](comm::Communicator& threads) {
    const auto clock = options.virtual_time ? virtual_clock() : wall_clock();
    PacedLink link(*clock, rate, kLinkLatency);
    PacedCommunicator world(threads, link);
    ledger::MemoryLedger ledger(world.rank(), 0);
    parallel::ParallelModel model = parallel::apply_parallelism(plan, world, ledger);
    if (options.reduced_per_computed > 0) {
      schedule::ScheduleParameters parameters = layout::schedule_parameters(plan);
      parameters.reduced_per_computed = options.reduced_per_computed;
      model.actions = schedule::make_schedule(parameters).actions.front();
    }
    const auto layers = model.parameters->layout().layers;
    for (size_t i = 0; i < layers.size(); ++i) {
      model.layers[i] = std::make_unique<FixedTimeLayer>(
          layers[i], plan.job.model.hidden_size, options.pass_s,
          [&clock](double seconds) { clock->wait_until(clock->now_s() + seconds); });
    }
    engine::Engine engine(plan, model, ledger, constant_samples(plan.job.training.sequence_length));
    for (int64_t step = 0; step < kWarmUpSteps; ++step) engine.step(step, 0.0);
    const double busy_s = link.busy_s, waited_s = link.waited_s;
    for (int64_t step = 0; step < kSteps; ++step) engine.step(kWarmUpSteps + step, 0.0);
    {
      const std::lock_guard guard(mutex);
      mean.communication_s += (link.busy_s - busy_s) / kSteps / ranks;
      mean.exposed_s += (link.waited_s - waited_s) / kSteps / ranks;
    }
    engine.wait_all();
  });
  return mean;
}

}  // namespace smp
