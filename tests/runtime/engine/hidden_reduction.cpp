#include "runtime/engine/hidden_reduction.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "parity/layouts.h"
#include "runtime/constant_samples.h"
#include "runtime/engine/fixed_time_layer.h"
#include "smp/comm/jobs/thread_group.h"
#include "smp/comm/wrapped_communicator.h"
#include "smp/runtime/engine/engine.h"

namespace smp {
namespace {

constexpr int64_t kWarmUpRounds = 1, kRounds = 15;
constexpr int64_t kBlocks = 20, kBuckets = 10;

enum class Reductions { kNone, kBeside, kSerial };
// Of the others each is beside one that it is compared with, and follows both kinds equally often:
// what a step leaves in the caches is the next one's.
constexpr Reductions kRound[] = {Reductions::kSerial, Reductions::kBeside, Reductions::kNone,
                                 Reductions::kNone,   Reductions::kBeside, Reductions::kBeside,
                                 Reductions::kNone,   Reductions::kNone,   Reductions::kBeside};
constexpr size_t kPairs = 4;  // of a round

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class DoneWork final : public comm::Work {
 public:
  bool done() override { return true; }
  void wait() override {}
};

// One rank's, of the step that it is in.
struct ReductionTrial {
  Reductions kind = Reductions::kNone;
  double alone_s = 0;  // of the reductions of serial steps
};

// Does with reductions of gradients what the trial says, and passes on all other calls.
class TrialCommunicator final : public comm::WrappedCommunicator {
 public:
  TrialCommunicator(comm::Communicator& inner, ReductionTrial& trial)
      : comm::WrappedCommunicator(inner), trial_(trial) {}
  TrialCommunicator(std::unique_ptr<comm::Communicator> inner, ReductionTrial& trial)
      : comm::WrappedCommunicator(std::move(inner)), trial_(trial) {}

  std::unique_ptr<comm::Communicator> split(const std::vector<int>& members) override {
    return std::make_unique<TrialCommunicator>(inner().split(members), trial_);
  }

 private:
  comm::WorkPtr pass(const Call& call) override {
    if (call.label != "data.gradients" || trial_.kind == Reductions::kBeside)
      return comm::WrappedCommunicator::pass(call);
    if (trial_.kind == Reductions::kNone) return std::make_shared<DoneWork>();
    inner().barrier("trial.together")->wait();
    const double start_s = now_s();
    comm::WorkPtr work = comm::WrappedCommunicator::pass(call);
    work->wait();
    trial_.alone_s += now_s() - start_s;
    return work;
  }

  ReductionTrial& trial_;
};

// Two blocks to a bucket.
Plan plan_of(const ReductionCase& what) {
  ModelSpec model = parity::gpt2_untied_model();
  model.num_layers = kBlocks;
  model.hidden_size = what.hidden_size;
  model.num_heads = model.num_kv_heads = what.hidden_size / 64;
  model.head_dim = 64;
  model.ffn_hidden_size = 4 * what.hidden_size;
  parity::LayoutCase layout;
  layout.sharding = what.is_sharded ? Sharding::kOptimizerState : Sharding::kNone;
  (what.is_sharded ? layout.degrees.shard : layout.degrees.replica) = what.ranks;
  layout.microbatches = 1;
  Plan plan = parity::plan_of(model, layout, Precision::kFp32, "");
  const int64_t block_bytes = 4 * 12 * what.hidden_size * what.hidden_size;
  plan.job.parallel.bucket_bytes = block_bytes * kBlocks / kBuckets * 3 / 4;  // passed by a second
  return plan;
}

double cpu_s() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Of this thread's own time: what others take of its CPU it has not computed.
void compute(double seconds) {
  const double until = cpu_s() + seconds;
  while (cpu_s() < until) {
  }
}

void spend(double seconds, bool sleeps) {
  if (!sleeps) return compute(seconds);
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

double at_rank(std::vector<double> values, int64_t rank) {
  const auto place = values.begin() + rank;
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

double median(const std::vector<double>& values) {
  return at_rank(values, static_cast<int64_t>(values.size() / 2));
}

// Half the range that holds the true median 19 times of 20, whatever the distribution: values fall
// on either side of it like a coin.
double margin_of_median(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  const auto low = static_cast<int64_t>(count / 2 - 0.98 * std::sqrt(count));
  const auto high = static_cast<int64_t>(values.size()) - 1 - low;
  return (at_rank(values, high) - at_rank(values, low)) / 2;
}

// Of each kind of step, in their order: means over ranks.
struct Steps {
  std::vector<double> none, beside, serial, alone;
};

void add(std::vector<double>& values, size_t at, double value) {
  if (values.size() <= at) values.resize(at + 1);
  values[at] += value;
}

void run_rank(const Plan& plan, const ReductionCase& what, comm::Communicator& threads,
              std::mutex& mutex, Steps& all, int64_t& gradient_bytes) {
  ReductionTrial trial;
  TrialCommunicator world(threads, trial);
  ledger::MemoryLedger ledger(world.rank(), 0);
  parallel::ParallelModel model = parallel::apply_parallelism(plan, world, ledger);
  const auto layers = model.parameters->layout().layers;
  const bool sleeps = what.sleeps;
  for (size_t i = 0; i < layers.size(); ++i)
    model.layers[i] =
        std::make_unique<FixedTimeLayer>(layers[i], plan.job.model.hidden_size, what.pass_s,
                                         [sleeps](double seconds) { spend(seconds, sleeps); });
  std::erase_if(model.actions, [](const schedule::Action& one) {
    return one.kind == schedule::ActionKind::kUpdate;
  });
  engine::Engine engine(plan, model, ledger, constant_samples(plan.job.training.sequence_length));
  int64_t step = 0;
  for (int64_t round = -kWarmUpRounds; round < kRounds; ++round) {
    size_t none = 0, beside = 0;  // of this round
    for (const Reductions kind : kRound) {
      trial = {kind};
      threads.barrier("step")->wait();
      const double start_s = now_s();
      engine.step(step++, 0.0);
      const double step_s = (now_s() - start_s) / what.ranks;
      if (round < 0) continue;
      const std::lock_guard guard(mutex);
      const auto at = static_cast<size_t>(round);
      if (kind == Reductions::kNone) add(all.none, kPairs * at + none++, step_s);
      if (kind == Reductions::kBeside) add(all.beside, kPairs * at + beside++, step_s);
      if (kind != Reductions::kSerial) continue;
      add(all.serial, at, step_s);
      add(all.alone, at, trial.alone_s / what.ranks);
    }
  }
  engine.wait_all();
  const std::lock_guard guard(mutex);
  gradient_bytes = 0;
  for (const auto& bucket : model.parameters->layout().buckets)
    gradient_bytes += (bucket.end - bucket.begin) * 4;
}

}  // namespace

HiddenReduction hidden_reduction(const ReductionCase& what) {
  const Plan plan = plan_of(what);
  Steps all;
  HiddenReduction found;
  std::mutex mutex;
  jobs::run_ranks(what.ranks, [&](comm::Communicator& threads) {
    run_rank(plan, what, threads, mutex, all, found.gradient_bytes);
  });
  std::vector<double> longer;
  for (size_t i = 0; i < all.none.size(); ++i) longer.push_back(all.beside[i] - all.none[i]);
  found.exposed_s = median(longer);
  found.margin_s = margin_of_median(longer);
  found.compute_s = median(all.none);
  found.step_s = median(all.beside);
  found.serial_step_s = median(all.serial);
  found.reductions_s = median(all.alone);
  return found;
}

}  // namespace smp
