#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "parity/layouts.h"
#include "runtime/constant_samples.h"
#include "runtime/engine/exposed_communication.h"
#include "scratch_folder.h"
#include "smp/comm/jobs/thread_group.h"
#include "smp/comm/wrapped_communicator.h"
#include "smp/plan/layout/schedule_of_plan.h"
#include "smp/plan/schedule/schedule.h"
#include "smp/plan/spec/bucket_size.h"
#include "smp/runtime/engine/engine.h"
#include "smp/runtime/parallel/parallelize.h"

namespace smp {
namespace {

// Counts the calls of gradients, and of weights, that nobody has waited for yet, and says of none
// that it is done.
class CountedCalls final : public comm::WrappedCommunicator {
 public:
  struct Counts {
    size_t now = 0, most = 0, all = 0;
  };
  using ByLabel = std::map<std::string, Counts, std::less<>>;
  CountedCalls(std::unique_ptr<comm::Communicator> inner, ByLabel& counts)
      : comm::WrappedCommunicator(std::move(inner)), counts_(counts) {}

  std::unique_ptr<comm::Communicator> split(const std::vector<int>& members) override {
    return std::make_unique<CountedCalls>(inner().split(members), counts_);
  }

 private:
  struct CountedWork final : comm::Work {
    CountedWork(comm::WorkPtr the_work, Counts& the_counts)
        : work(std::move(the_work)), counts(the_counts) {
      counts.most = std::max(counts.most, ++counts.now);
      ++counts.all;
    }
    bool done() override { return false; }
    void wait() override {
      work->wait();
      --counts.now;
    }
    const comm::WorkPtr work;
    Counts& counts;
  };

  comm::WorkPtr pass(const Call& call) override {
    comm::WorkPtr work = comm::WrappedCommunicator::pass(call);
    const auto found = counts_.find(call.label);
    if (found == counts_.end()) return work;
    return std::make_shared<CountedWork>(std::move(work), found->second);
  }

  ByLabel& counts_;
};

// An engine that runs the schedule of these parameters.
template <typename Use>
void with_engine(const Plan& plan, const schedule::ScheduleParameters& parameters,
                 comm::Communicator& world, const Use& use) {
  ledger::MemoryLedger ledger(world.rank(), 0);
  const ledger::LedgerScope scope(ledger);
  parallel::ParallelModel model = parallel::apply_parallelism(plan, world, ledger);
  model.actions = schedule::make_schedule(parameters).actions.front();
  engine::Engine engine(plan, model, ledger, constant_samples(plan.job.training.sequence_length));
  use(engine);
}

}  // namespace

TEST_CASE("through the hosts of GPUs four buckets of gradients and two of weights are under way") {
  const ScratchFolder folder;
  std::ofstream(folder / "text.txt") << parity::sample_text(8000);
  ModelSpec gpt = parity::gpt2_untied_model();
  gpt.num_layers = 8;
  for (const Sharding sharding :
       {Sharding::kNone, Sharding::kOptimizerState, Sharding::kGradients, Sharding::kParameters}) {
    for (const int64_t replicas : {1, 2}) {
      CAPTURE(static_cast<int>(sharding));
      CAPTURE(replicas);
      parity::LayoutCase layout{"", {.shard = sharding == Sharding::kNone ? 1 : 2}};
      layout.degrees.replica = sharding == Sharding::kNone ? 2 * replicas : replicas;
      layout.sharding = sharding;
      Plan plan = parity::plan_of(gpt, layout, Precision::kFp32, folder / "text.txt");
      plan.job.parallel.bucket_bytes = 1;  // a layer's are one
      schedule::ScheduleParameters parameters = layout::schedule_parameters(plan);
      parameters.most_reductions = kMostReductions;
      if (parameters.sharded) parameters.most_gathers = kMostGathers;
      jobs::run_ranks(static_cast<int>(2 * replicas), [&](comm::Communicator& threads) {
        CountedCalls::ByLabel counts{{"data.gradients", {}}, {"shard.weights", {}}};
        std::vector<int> all(static_cast<size_t>(threads.size()));
        std::iota(all.begin(), all.end(), 0);
        CountedCalls world(threads.split(all), counts);
        with_engine(plan, parameters, world, [&](engine::Engine& engine) {
          for (int64_t step = 0; step < 3; ++step) {
            engine.step(step, 1e-3);
            if (step != 1) engine.wait_all();
          }
          const CountedCalls::Counts gradients = counts["data.gradients"];
          const CountedCalls::Counts weights = counts["shard.weights"];
          CHECK(gradients.now == 0);
          CHECK(gradients.all >= 3 * 8);
          CHECK(gradients.most <= 4);
          if (sharding == Sharding::kNone) CHECK(gradients.most == 4);
          CHECK(weights.now == 0);
          CHECK(weights.all >= (sharding == Sharding::kNone ? 0 : 3 * 8));
          // One for each update, whoever starts it: the step, the next one or wait_all().
          if (parameters.sharded) CHECK(weights.all == 3 * parameters.bucket_elements[0].size());
          CHECK(weights.most <= 2);
        });
      });
    }
  }
}

TEST_CASE("weights are the same however many gathers may be in flight") {
  const ScratchFolder folder;
  std::ofstream(folder / "text.txt") << parity::sample_text(8000);
  parity::LayoutCase layout{"", {.shard = 2}};
  layout.sharding = Sharding::kOptimizerState;
  Plan plan = parity::plan_of(parity::gpt2_model(), layout, Precision::kFp32, folder / "text.txt");
  plan.job.parallel.bucket_bytes = 1;
  plan.job.training.evaluation.every_steps = 1;
  const auto losses = [&](int64_t most_gathers) {
    schedule::ScheduleParameters parameters = layout::schedule_parameters(plan);
    parameters.most_gathers = most_gathers;
    std::vector<double> all(6);
    jobs::run_ranks(2, [&](comm::Communicator& world) {
      with_engine(plan, parameters, world, [&](engine::Engine& engine) {
        for (size_t step = 0; step < 3; ++step) {
          const double loss = engine.step(static_cast<int64_t>(step), 1e-2).loss;
          // Evaluation needs all weights between two steps.
          const double evaluated = step == 1 ? engine.evaluate(0) : 0;
          if (world.rank() != 0) continue;
          all[step] = loss;
          all[3 + step] = evaluated;
        }
        engine.wait_all();
      });
    });
    return all;
  };
  const std::vector<double> unlimited = losses(0);
  CHECK(unlimited[2] < unlimited[0]);
  CHECK(unlimited[4] > 0);
  for (const int64_t most_gathers : {1, 2, 3}) CHECK(losses(most_gathers) == unlimited);
}

// In virtual time, so that the numbers are exact.
TEST_CASE("computing hides all but 15 % of communication that takes half its time") {
  for (const Sharding sharding :
       {Sharding::kNone, Sharding::kOptimizerState, Sharding::kGradients, Sharding::kParameters}) {
    CAPTURE(static_cast<int>(sharding));
    const ExposedCommunication once = exposed_communication(exposure_plan(sharding), {});
    MESSAGE("exposed: " << 100 * once.share() << " %");
    CHECK(once.communication_s == doctest::Approx(once.compute_s / 2));
    CHECK(once.share() <= 0.15);
    CHECK(exposed_communication(exposure_plan(sharding), {}).exposed_s == once.exposed_s);
    if (sharding == Sharding::kNone) continue;
    const ExposedCommunication hybrid = exposed_communication(exposure_plan(sharding, 2), {});
    MESSAGE("exposed with two replicas: " << 100 * hybrid.share() << " %");
    CHECK(hybrid.share() <= 0.15);
  }
}

TEST_CASE("the sooner second halves start after their first halves, the less is exposed") {
  double before = 0.15;
  for (const int64_t pace : {1, 2, 4}) {
    const double share = exposed_communication(exposure_plan(Sharding::kOptimizerState, 2),
                                               {.reduced_per_computed = pace})
                             .share();
    MESSAGE("reduced per computed " << pace << ", exposed: " << 100 * share << " %");
    CHECK(share < before);
    before = share;
  }
  CHECK(before <=
        0.111);  // as if each started at the end of the layer in which it becomes possible
}

TEST_CASE("a step begins on updated shards, whatever their owners do after the update") {
  const ScratchFolder folder;
  std::ofstream(folder / "text.txt") << parity::sample_text(8000);
  parity::LayoutCase layout{"", {.shard = 2}};
  layout.sharding = Sharding::kParameters;
  const Plan plan =
      parity::plan_of(parity::gpt2_model(), layout, Precision::kFp32, folder / "text.txt");
  std::promise<void> begun;  // rank 0 has gathered the first weights of the second step
  bool told = false;
  jobs::run_ranks(2, [&](comm::Communicator& world) {
    ledger::MemoryLedger ledger(world.rank(), 0);
    const ledger::LedgerScope scope(ledger);
    parallel::ParallelModel model = parallel::apply_parallelism(plan, world, ledger);
    const engine::ReadSamples read = constant_samples(plan.job.training.sequence_length);
    engine::Engine engine(
        plan, model, ledger,
        [&](int64_t step, int64_t first, int64_t count, const engine::SampleBuffers& out) {
          const bool tells = step == 1 && world.rank() == 0;
          if (tells && !std::exchange(told, true)) begun.set_value();
          read(step, first, count, out);
        });
    engine.step(0, 1e-3);
    if (world.rank() == 1) {
      CHECK(begun.get_future().wait_for(std::chrono::seconds(60)) == std::future_status::ready);
    }
    engine.step(1, 1e-3);
    engine.wait_all();
  });
}

}  // namespace smp
