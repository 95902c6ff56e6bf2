#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "feed/data_source.h"
#include "feed/step_data.h"
#include "smp/comm/jobs/thread_group.h"
#include "smp/plan/planfile/plan_file.h"
#include "smp/runtime/engine/engine.h"
#include "smp/runtime/ledger/memory_ledger.h"
#include "smp/runtime/parallel/parallelize.h"

// What reading costs a training: steps of a plan of one rank whose samples are read ahead from its
// data, and steps with the same samples from memory. smp_data_cost_bench PLAN ROUNDS: in each round
// kSteps steps of either in turn. Prints a line a round: the quickest of each in ms, with data and
// without; what else the machine does makes steps longer alone.
namespace smp {
namespace {

constexpr int64_t kSteps = 8;

// The samples of each microbatch of some steps, by step and first sample.
class KeptSamples {
 public:
  KeptSamples(const feed::DataSource& data, const data::BatchShare& share)
      : data_(data), share_(share) {}

  void keep(int64_t step) {
    for (int64_t i = 0; i < share_.microbatches; ++i) {
      const int64_t first = share_.first_sample + i * share_.micro_batch;
      std::vector<int64_t>& values = kept_[{step, first}];
      values.resize(static_cast<size_t>(share_.microbatch_values()));
      data_.read(step, first, share_.micro_batch, buffers(values));
    }
  }

  void read(int64_t step, int64_t first, const engine::SampleBuffers& out) {
    const engine::SampleBuffers from = buffers(kept_.at({step, first}));
    const int64_t count = share_.micro_batch * share_.length;
    for (const model::BatchField field : {model::BatchField::kTokens, model::BatchField::kTargets,
                                          model::BatchField::kDocumentStarts}) {
      if (out.integers(field) != nullptr)
        std::copy_n(from.integers(field), count, out.integers(field));
    }
  }

 private:
  engine::SampleBuffers buffers(std::vector<int64_t>& values) const {
    engine::SampleBuffers buffers;
    int64_t* at = values.data();
    const auto put = [&](bool wanted, model::BatchField field) {
      if (wanted) buffers.at(field) = std::exchange(at, at + share_.micro_batch * share_.length);
    };
    put(share_.tokens, model::BatchField::kTokens);
    put(share_.targets, model::BatchField::kTargets);
    put(share_.document_starts, model::BatchField::kDocumentStarts);
    return buffers;
  }

  const feed::DataSource& data_;
  const data::BatchShare share_;
  std::map<std::pair<int64_t, int64_t>, std::vector<int64_t>> kept_;
};

void compare(const Plan& plan, int64_t rounds) {
  jobs::run_ranks(1, [&](comm::Communicator& world) {
    ledger::install_counting_allocator();
    ledger::MemoryLedger ledger(0, 0);
    const ledger::LedgerScope scope(ledger);
    parallel::ParallelModel model = parallel::apply_parallelism(plan, world, ledger);
    const std::unique_ptr<feed::DataSource> data = feed::open_data(plan);
    const layout::RankLayout& layout = model.parameters->layout();
    KeptSamples kept(*data, data::batch_share(plan, layout));
    std::optional<feed::StepData> batches;
    engine::Engine engine(
        plan, model, ledger,
        [&](int64_t step, int64_t first, int64_t count, const engine::SampleBuffers& out) {
          batches ? batches->read(step, first, count, out) : kept.read(step, first, out);
        });
    // The first step of a turn has nothing that was read ahead, and is not counted.
    const auto turn = [&](int64_t first) {
      std::vector<double> seconds;
      for (int64_t step = first; step <= first + kSteps; ++step) {
        const auto start = std::chrono::steady_clock::now();
        engine.step(step, 1e-5);
        const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
        if (step > first) seconds.push_back(spent.count());
      }
      return 1e3 * *std::min_element(seconds.begin(), seconds.end());
    };
    for (int64_t round = -1; round < rounds; ++round) {  // the first one warms up
      const int64_t first = (round + 1) * (kSteps + 1);
      for (int64_t step = first; step <= first + kSteps; ++step) kept.keep(step);
      double with_data = 0, without = 0;
      // Either comes first in every other round, so that a drift of the machine hits both.
      for (const bool reads : {round % 2 == 0, round % 2 != 0}) {
        if (reads) {
          batches.emplace(plan, *data, layout);
          batches->start(first, first + kSteps + 1);
        }
        (reads ? with_data : without) = turn(first);
        batches.reset();
      }
      if (round >= 0) fmt::print("{:.4f} {:.4f}\n", with_data, without);
    }
  });
}

}  // namespace
}  // namespace smp

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: smp_data_cost_bench PLAN ROUNDS\n");
    return 2;
  }
  at::set_num_threads(1);
  smp::compare(smp::planfile::read_plan(argv[1]), std::atoll(argv[2]));
}
