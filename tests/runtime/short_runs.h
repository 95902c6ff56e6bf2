#pragma once

#include <fstream>
#include <mutex>
#include <string>

#include "parity/layouts.h"
#include "scratch_folder.h"
#include "smp/comm/jobs/thread_group.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/jobfile/job_reader.h"
#include "smp/plan/model/operators.h"
#include "smp/runtime/training/trainer.h"

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
                           folder_ / (model::is_list(model) ? "images.csv" : "text.txt"));
  }

  // What rank 0 came to.
  static training::RunResult run(const Plan& plan, const training::TrainOptions& options) {
    training::RunResult result;
    jobs::run_ranks(static_cast<int>(plan.degrees.world()), [&](comm::Communicator& world) {
      training::TrainOptions mine = options;
      mine.threads = 1;
      training::RunResult one = training::train(plan, world, mine);
      if (world.rank() == 0) result = std::move(one);
    });
    return result;
  }

  // What stopped the run, in the words of a rank that no peer's end stopped.
  static std::string error(const Plan& plan, const training::TrainOptions& options) {
    std::mutex mutex;
    std::string text = "no error";
    jobs::run_ranks(static_cast<int>(plan.degrees.world()), [&](comm::Communicator& world) {
      training::TrainOptions mine = options;
      mine.threads = 1;
      try {
        training::train(plan, world, mine);
      } catch (const comm::CommError&) {  // its peer says why
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
  return jobfile::read_job({jobfile::load_job_source(SMP_SOURCE_DIR "/configs/jobs/digits.yaml")},
                           {});
}
inline std::string digits_file() { return SMP_SOURCE_DIR "/tests/golden/digits/digits-240.csv"; }

inline training::TrainOptions options_of(const std::string& run_dir, int64_t steps) {
  training::TrainOptions options;
  options.run_dir = run_dir;
  options.steps = steps;
  return options;
}

inline training::TrainOptions resumed(const std::string& run_dir, int64_t steps) {
  training::TrainOptions options = options_of(run_dir, steps);
  options.resume = true;
  return options;
}

}  // namespace smp::test
