#include <doctest/doctest.h>

#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "parity/layouts.h"
#include "runtime/constant_samples.h"
#include "runtime/engine/fixed_time_layer.h"
#include "smp/comm/jobs/thread_group.h"
#include "smp/comm/wrapped_communicator.h"
#include "smp/runtime/engine/engine.h"
#include "smp/runtime/parallel/parallelize.h"

namespace smp {
namespace {

// Keeps the numbers of data-parallel calls that nobody has waited for to their end.
class OpenCalls final : public comm::WrappedCommunicator {
 public:
  struct Calls {
    int64_t started = 0;
    std::set<int64_t> open;
    bool all_reduces = false;  // sums over replicas are among them
  };
  OpenCalls(std::unique_ptr<comm::Communicator> inner, Calls& calls)
      : comm::WrappedCommunicator(std::move(inner)), calls_(calls) {}

  std::unique_ptr<comm::Communicator> split(const std::vector<int>& members) override {
    return std::make_unique<OpenCalls>(inner().split(members), calls_);
  }

 private:
  struct OpenWork final : comm::Work {
    OpenWork(comm::WorkPtr the_work, Calls& the_calls)
        : work(std::move(the_work)), calls(the_calls), number(the_calls.started++) {
      calls.open.insert(number);
    }
    bool done() override { return work->done(); }
    void wait() override {
      calls.open.erase(number);  // it ends here, or throws because the call has failed
      work->wait();
    }
    const comm::WorkPtr work;
    Calls& calls;
    const int64_t number;
  };

  comm::WorkPtr pass(const Call& call) override {
    comm::WorkPtr work = comm::WrappedCommunicator::pass(call);
    if (call.label != "data.gradients" && call.label != "shard.weights") return work;
    calls_.all_reduces |= call.op == mesh::CollectiveOp::kAllReduce;
    return std::make_shared<OpenWork>(std::move(work), calls_);
  }

  Calls& calls_;
};

constexpr int64_t kBlocks = 8;

}  // namespace

TEST_CASE("a rank that breaks in its backward leaves no reduction or gather behind on any rank") {
  ModelSpec gpt = parity::gpt2_untied_model();
  gpt.num_layers = kBlocks;
  for (const Sharding sharding :
       {Sharding::kNone, Sharding::kOptimizerState, Sharding::kGradients, Sharding::kParameters}) {
    CAPTURE(static_cast<int>(sharding));
    parity::LayoutCase layout{"", {.shard = sharding == Sharding::kNone ? 1 : 2}};
    layout.degrees.replica = sharding == Sharding::kNone ? 4 : 2;
    layout.sharding = sharding;
    layout.microbatches = 1;
    Plan plan = parity::plan_of(gpt, layout, Precision::kFp32, "");
    plan.job.parallel.bucket_bytes = 1;  // a layer's are one
    std::vector<std::string> errors(4);
    std::vector<OpenCalls::Calls> calls(4);
    std::vector<size_t> open_when_it_broke(4);
    jobs::run_ranks(4, [&](comm::Communicator& threads) {
      const auto rank = static_cast<size_t>(threads.rank());
      OpenCalls world(threads.split({0, 1, 2, 3}), calls[rank]);
      ledger::MemoryLedger ledger(world.rank(), 0);
      const ledger::LedgerScope scope(ledger);
      parallel::ParallelModel model = parallel::apply_parallelism(plan, world, ledger);
      int64_t passes = 0;  // two for each block and step
      const auto spend = [&](double) {
        if (rank != 3 || ++passes < 2 * kBlocks + kBlocks + 4) return;
        open_when_it_broke[rank] = calls[rank].open.size();
        throw std::runtime_error("the layer broke");
      };
      const auto layers = model.parameters->layout().layers;
      for (size_t i = 0; i < layers.size(); ++i) {
        model.layers[i] = std::make_unique<FixedTimeLayer>(layers[i], gpt.hidden_size, 0.0, spend);
      }
      engine::Engine engine(plan, model, ledger,
                            constant_samples(plan.job.training.sequence_length));
      try {
        for (int64_t step = 0; step < 2; ++step) engine.step(step, 1e-3);
        engine.wait_all();
      } catch (const std::exception& error) {
        errors[rank] = error.what();
      }
    });
    CHECK(errors[3] == "the layer broke");
    CHECK(open_when_it_broke[3] > 0);
    for (size_t rank = 0; rank < 4; ++rank) {
      CAPTURE(rank);
      CHECK(calls[rank].open.empty());
      CHECK(calls[rank].all_reduces);
      if (rank < 3) CHECK(errors[rank].find("the layer broke") != std::string::npos);
    }
  }
}

}  // namespace smp
