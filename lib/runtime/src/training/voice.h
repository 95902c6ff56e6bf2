#pragma once

#include <cstdint>
#include <memory>

#include "smp/plan/spec/plan.h"
#include "smp/runtime/record/metrics.h"
#include "smp/runtime/training/trainer.h"

namespace smp::tensorboard {
class EventLog;
}

namespace smp::training {

// Where the numbers of each step go: metrics.jsonl and TensorBoard's files, as training.metrics
// says, and the step line. Rank 0's; the other ranks have none. Used by the rank's own thread.
class Voice {
 public:
  // `first_step`: steps done before this start.
  Voice(const Plan& plan, const TrainOptions& options, int64_t rank, int64_t first_step,
        int64_t steps);
  ~Voice();
  Voice(const Voice&) = delete;
  Voice& operator=(const Voice&) = delete;

  // Throws std::runtime_error where the disk refuses what was said.
  void say(const record::StepMetrics& metrics);

  // Training came to its end after `done` steps.
  void end(int64_t done);

 private:
  std::unique_ptr<record::MetricsFile> file_;
  std::unique_ptr<tensorboard::EventLog> events_;
  std::unique_ptr<record::StepLine> line_;
};

}  // namespace smp::training
