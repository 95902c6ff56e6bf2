#include <doctest/doctest.h>

#include <chrono>
#include <fstream>
#include <future>
#include <utility>

#include "constant_samples.h"
#include "parity/layouts.h"
#include "runtime/exposed_communication.h"
#include "scratch_folder.h"
#include "smp/comm/thread_group.h"
#include "smp/runtime/engine.h"
#include "smp/runtime/parallelize.h"

namespace smp {

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
  }
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
  run_ranks(2, [&](Communicator& world) {
    MemoryLedger ledger(world.rank(), 0);
    const LedgerScope scope(ledger);
    ParallelModel model = apply_parallelism(plan, world, ledger);
    const ReadSamples read = constant_samples(plan.job.training.sequence_length);
    Engine engine(plan, model, ledger,
                  [&](int64_t step, int64_t first, int64_t count, const SampleBuffers& out) {
                    const bool tells = step == 1 && world.rank() == 0;
                    if (tells && !std::exchange(told, true)) begun.set_value();
                    read(step, first, count, out);
                  });
    engine.step(0, 1e-3);
    if (world.rank() == 1) {
      CHECK(begun.get_future().wait_for(std::chrono::seconds(60)) == std::future_status::ready);
    }
    engine.step(1, 1e-3);
    engine.settle();
  });
}

}  // namespace smp
