#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "smp/plan/layers.h"
#include "smp/plan/plan.h"
#include "smp/plan/schedule_of_plan.h"
#include "smp/runtime/memory_ledger.h"
#include "smp/runtime/parallelize.h"
#include "smp/runtime/training_error.h"

namespace smp {

// Where samples go, by field of the batch, in the shape and type of field_of(); null = not wanted.
class SampleBuffers {
 public:
  void*& at(BatchField field) { return buffers_[static_cast<size_t>(field)]; }
  void* get(BatchField field) const { return buffers_[static_cast<size_t>(field)]; }
  int64_t* integers(BatchField field) const { return static_cast<int64_t*>(get(field)); }

 private:
  std::array<void*, kBatchFields> buffers_{};
};

// Puts samples [first_sample, first_sample + count) of a step's global batch where they are wanted.
// Steps count from 0.
using ReadSamples = std::function<void(int64_t step, int64_t first_sample, int64_t count,
                                       const SampleBuffers& out)>;

struct StepResult {
  double loss = 0;        // mean over what counts of the global batch; the same on all ranks
  double grad_norm = 0;   // global, before clipping; the same on all ranks
  double loss_scale = 1;  // fp16's, of this step
  bool skipped = false;   // fp16: the gradients overflowed, so nothing was updated
};

// The Engine executes a rank's schedule, one action after the other. Each layer call is an
// island: what its backward needs is in the engine's hands, and between islands everything else
// happens: messages start and are waited for, gradient buckets are reduced while the backward goes
// on.
//
// Gradients are summed, with the loss scaled by 1 / (microbatches * data-parallel degree), as if
// all targets counted. Where some do not (kNoTarget of data_files.h; counts_vary() of schedule.h)
// the step's end multiplies loss, norm and gradients by all targets / those that count, so they are
// those of the mean over the global batch. Used by the rank's own thread, under its LedgerScope;
// model and ledger must outlive it.
class Engine {
 public:
  Engine(const Plan& plan, ParallelModel& model, MemoryLedger& ledger, ReadSamples read_samples);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // One training step, number `step` from 0. Throws TrainingError, CommError or OutOfMemory, and
  // ConfigError for a target that is missing where the job says that all are there; after
  // that the engine is of no further use. With ZeRO-1 and 2 the updated weights may still be under
  // way when it returns: each rank has its own part, and the next step waits for the others.
  StepResult step(int64_t step, double learning_rate);

  // Waits until nothing is under way: the weights may be read whole, or changed by the caller; the
  // counted traffic is that of whole steps. Due before the engine goes. Throws CommError.
  void settle();

  // The loss of the batch that the reader gives for `step`, forward alone: summed over the targets
  // that count, divided by the number of all. The same on all ranks. Nothing changes. Collective
  // over the world, and throws as step() does.
  double evaluate(int64_t step);
  // How many targets counted in the last evaluate(). The same on all ranks.
  int64_t counted() const;
  // Of the samples of the last evaluate(), the share whose label had the largest logit; of models
  // that classify samples (lists of layers), else 0. The same on all ranks.
  double accuracy() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace smp
