#include "runtime/hidden_reduction.h"

#include <chrono>
#include <memory>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>

#include "parity/layouts.h"
#include "runtime/constant_samples.h"
#include "runtime/fixed_time_layer.h"
#include "smp/comm/thread_group.h"
#include "smp/comm/wrapped_communicator.h"
#include "smp/runtime/engine.h"

namespace smp {
namespace {

constexpr int64_t kWarmUpSteps = 2, kSteps = 6;
constexpr double kPassSeconds = 0.0017;  // three of them, 5 ms, are a block's forward and backward

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// No call is under way when its caller goes on.
class SerialCommunicator final : public WrappedCommunicator {
 public:
  SerialCommunicator(Communicator& inner, double& waited_s)
      : WrappedCommunicator(inner), waited_s_(waited_s) {}
  SerialCommunicator(std::unique_ptr<Communicator> inner, double& waited_s)
      : WrappedCommunicator(std::move(inner)), waited_s_(waited_s) {}

  std::unique_ptr<Communicator> split(const std::vector<int>& members) override {
    return std::make_unique<SerialCommunicator>(inner().split(members), waited_s_);
  }

 private:
  WorkPtr pass(const Call& call) override {
    const double start_s = now_s();
    WorkPtr work = WrappedCommunicator::pass(call);
    work->wait();
    waited_s_ += now_s() - start_s;
    return work;
  }

  double& waited_s_;
};

// 20 blocks of 3.2 MB, two to a bucket.
Plan plan_of_ranks(int ranks) {
  ModelSpec model = parity::gpt2_untied_model();
  model.num_layers = 20;
  model.hidden_size = 256;
  model.num_heads = model.num_kv_heads = 4;
  model.head_dim = 64;
  model.ffn_hidden_size = 1024;
  parity::LayoutCase layout;
  layout.sharding = Sharding::kNone;
  layout.degrees.replica = ranks;
  layout.microbatches = 1;
  Plan plan = parity::plan_of(model, layout, Precision::kFp32, "");
  plan.job.parallel.bucket_bytes = 5 << 20;
  return plan;
}

void spend(double seconds, bool sleeps) {
  if (sleeps) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    return;
  }
  const double until = now_s() + seconds;
  while (now_s() < until) {
  }
}

// Of a step: its time, and how long the ranks wait for each other.
std::pair<double, double> measured(const Plan& plan, bool sleeps, bool overlaps) {
  const auto ranks = static_cast<double>(plan.degrees.world());
  double step_s = 0, waited_s = 0;
  std::mutex mutex;
  run_ranks(static_cast<int>(plan.degrees.world()), [&](Communicator& threads) {
    double in_calls_s = 0;
    SerialCommunicator serial(threads, in_calls_s);
    Communicator& world = overlaps ? threads : static_cast<Communicator&>(serial);
    MemoryLedger ledger(world.rank(), 0);
    ParallelModel model = apply_parallelism(plan, world, ledger);
    const auto layers = model.parameters->layout().layers;
    for (size_t i = 0; i < layers.size(); ++i)
      model.layers[i] =
          std::make_unique<FixedTimeLayer>(layers[i], plan.job.model.hidden_size, kPassSeconds,
                                           [sleeps](double seconds) { spend(seconds, sleeps); });
    Engine engine(plan, model, ledger, constant_samples(plan.job.training.sequence_length));
    for (int64_t step = 0; step < kWarmUpSteps; ++step) engine.step(step, 0.0);
    threads.barrier("warm")->wait();
    const auto waited = [&] { return overlaps ? model.groups->waited_s() : in_calls_s; };
    const double start = now_s(), waited_before = waited();
    for (int64_t step = 0; step < kSteps; ++step) engine.step(kWarmUpSteps + step, 0.0);
    {
      const std::lock_guard guard(mutex);
      step_s += (now_s() - start) / kSteps / ranks;
      waited_s += (waited() - waited_before) / kSteps / ranks;
    }
    engine.settle();
  });
  return {step_s, waited_s};
}

}  // namespace

HiddenReduction hidden_reduction(int ranks, bool sleeps) {
  const Plan plan = plan_of_ranks(ranks);
  HiddenReduction found;
  std::tie(found.serial_step_s, found.serial_waited_s) = measured(plan, sleeps, false);
  std::tie(found.step_s, found.waited_s) = measured(plan, sleeps, true);
  return found;
}

}  // namespace smp
