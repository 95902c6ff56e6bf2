#pragma once

#include <fstream>
#include <mutex>
#include <string>

#include "parity/layouts.h"
#include "scratch_folder.h"
#include "smp/comm/thread_group.h"
#include "smp/plan/errors.h"
#include "smp/plan/job_reader.h"
#include "smp/plan/operators.h"
#include "smp/runtime/trainer.h"

namespace smp::test {

// Text and images to train small models on, and runs of a few steps with the ranks as threads.
class ShortRuns {
 public:
  ShortRuns() {
    std::ofstream(folder_ / "text.txt") << parity::sample_text(8000);
    std::ofstream(folder_ / "images.csv") << parity::sample_data(parity::image_model());
  }

  Plan plan(const parity::LayoutCase& layout, Precision precision = Precision::kFp64,
            const ModelSpec& model = parity::gpt2_model()) const {
    return parity::plan_of(model, layout, precision,
                           folder_ / (is_list(model) ? "images.csv" : "text.txt"));
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

// configs/jobs/digits.yaml, which has AlexNet's layers, and a part of its data.
inline JobSpec digits_job() {
  return read_job({load_job_source(SMP_SOURCE_DIR "/configs/jobs/digits.yaml")}, {});
}
inline std::string digits_file() { return SMP_SOURCE_DIR "/tests/golden/digits/digits-240.csv"; }

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
