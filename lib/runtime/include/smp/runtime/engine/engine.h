#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "smp/plan/layout/schedule_of_plan.h"
#include "smp/plan/model/layers.h"
#include "smp/plan/spec/plan.h"
#include "smp/runtime/engine/read_samples.h"
#include "smp/runtime/engine/step_result.h"
#include "smp/runtime/ledger/memory_ledger.h"
#include "smp/runtime/optim/training_error.h"
#include "smp/runtime/parallel/parallelize.h"

namespace smp::engine {

// The Engine executes a rank's schedule, one action after the other. A layer call is an island: it
// returns the tensors that its backward needs, and the engine keeps them. Between islands the
// engine starts messages and waits for them, and reduces gradient buckets while the backward goes
// on.
//
// Gradients are summed with the loss scaled by 1 / (microbatches * data-parallel degree), as if all
// targets counted. If some do not (kNoTarget of data_files.h; counts_vary() of schedule.h), the end
// of the step multiplies loss, norm and gradients by all targets / targets that count. The results
// are then those of the mean over the global batch. Used by the rank's own thread, under its
// LedgerScope; model and ledger must outlive it.
class Engine {
 public:
  Engine(const Plan& plan, parallel::ParallelModel& model, ledger::MemoryLedger& ledger,
         ReadSamples read_samples);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // One training step, number `step` from 0. Throws TrainingError, CommError, OutOfMemory, or
  // ConfigError for a missing target in a job whose targets must all count. The engine cannot be
  // used after an exception. With ZeRO-1 and 2 the gathers of updated weights may still be in
  // flight when step() returns. Where the schedule limits them some are not even started. Each rank
  // has its own part; the next step starts and waits for the rest.
  StepResult step(int64_t step, double learning_rate);

  // Ends all communication of the last step. Afterwards the caller may read or change the weights,
  // and the counted traffic is that of whole steps. Must be called before the engine is destroyed.
  // Throws CommError.
  void wait_all();

  // Forward only: the loss of the batch that the reader gives for `step`, summed over the targets
  // that count and divided by the number of all targets. The same on all ranks. Changes no weights.
  // Collective over the world; throws as step() does.
  double evaluate(int64_t step);
  // The number of targets that counted in the last evaluate(). The same on all ranks.
  int64_t counted() const;
  // The share of the last evaluate()'s samples whose label had the largest logit. 0 for models that
  // do not classify samples (other than lists of layers). The same on all ranks.
  double accuracy() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace smp::engine
