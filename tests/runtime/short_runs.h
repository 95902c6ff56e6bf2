#pragma once

#include <fstream>
#include <mutex>
#include <string>

#include "parity/layouts.h"
#include "scratch_folder.h"
#include "smp/comm/thread_group.h"
#include "smp/plan/errors.h"
#include "smp/runtime/trainer.h"

namespace smp::test {

// A text to train a small GPT-2 on, and runs of a few steps over it with the ranks as threads.
class ShortRuns {
 public:
  ShortRuns() { std::ofstream(folder_ / "text.txt") << parity::sample_text(8000); }

  Plan plan(const parity::LayoutCase& layout, Precision precision = Precision::kFp64) const {
    return parity::plan_of(parity::gpt2_model(), layout, precision, folder_ / "text.txt");
  }

  // What rank 0 came to.
  static RunResult run(const Plan& plan, const TrainOptions& options) {
    RunResult result;
    run_ranks(static_cast<int>(plan.degrees.world()), [&](Communicator& world) {
      TrainOptions mine = options;
      mine.threads = 1;
      RunResult one = train(plan, world, mine);
      if (world.rank() == 0) result = std::move(one);
    });
    return result;
  }

  // What stopped the run, in the words of a rank that no peer's end stopped.
  static std::string error(const Plan& plan, const TrainOptions& options) {
    std::mutex mutex;
    std::string text = "no error";
    run_ranks(static_cast<int>(plan.degrees.world()), [&](Communicator& world) {
      TrainOptions mine = options;
      mine.threads = 1;
      try {
        train(plan, world, mine);
      } catch (const CommError&) {  // its peer says why
      } catch (const std::exception& error) {
        const std::scoped_lock lock(mutex);
        text = error.what();
      }
    });
    return text;
  }

 private:
  ScratchFolder folder_;
};

inline TrainOptions options_of(const std::string& run_dir, int64_t steps) {
  TrainOptions options;
  options.run_dir = run_dir;
  options.steps = steps;
  return options;
}

inline TrainOptions resumed(const std::string& run_dir, int64_t steps) {
  TrainOptions options = options_of(run_dir, steps);
  options.resume = true;
  return options;
}

}  // namespace smp::test
