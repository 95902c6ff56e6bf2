#pragma once

#include <cstdint>
#include <memory>

#include "smp/plan/spec/plan.h"
#include "smp/runtime/record/metrics.h"
#include "smp/runtime/training/train_options.h"

namespace smp::tensorboard {
class EventLog;
}

namespace smp::training {

// Writes the metrics of each step to metrics.jsonl and TensorBoard's files, as training.metrics
// says, and to the step line. Rank 0 only; on other ranks it does nothing. Used by the rank's own
// thread.
class StepReporter {
 public:
  // `first_step`: steps done before this start.
  StepReporter(const Plan& plan, const TrainOptions& options, int64_t rank, int64_t first_step,
               int64_t steps);
  ~StepReporter();
  StepReporter(const StepReporter&) = delete;
  StepReporter& operator=(const StepReporter&) = delete;

  // Throws std::runtime_error if a file cannot be written.
  void report(const record::StepMetrics& metrics);

  // Training has ended after `done` steps.
  void end(int64_t done);

 private:
  std::unique_ptr<record::MetricsFile> file_;
  std::unique_ptr<tensorboard::EventLog> events_;
  std::unique_ptr<record::StepLine> line_;
};

}  // namespace smp::training
