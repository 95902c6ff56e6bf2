#pragma once

#include <cstdint>

#include "microbatch.h"
#include "smp/plan/plan.h"
#include "smp/plan/schedule.h"
#include "smp/runtime/engine.h"
#include "smp/runtime/parallelize.h"

namespace smp {

// Runs the forward and backward of single layers for single microbatches, and keeps between them
// what a backward needs. Used by the engine's thread.
class LayerCalls {
 public:
  LayerCalls(const Plan& plan, ParallelModel& model, Microbatches& microbatches,
             ReadSamples read_samples);

  void begin_step(int64_t step);
  void forward(const Action& action);
  void backward(const Action& action);

  // Of this rank's microbatches so far: the sum of their mean losses, scaled to the global batch.
  double loss() const { return loss_sum_ * loss_scale(); }

 private:
  InFlight& admit(const Action& action);
  size_t position_of(const Action& action) const;  // of its layer in the stage
  double loss_scale() const;

  const Plan& plan_;
  ParallelModel& model_;
  Microbatches& microbatches_;
  ReadSamples read_;
  const int64_t micro_batch_, microbatch_count_, sequence_, data_rank_;
  const int64_t first_layer_, last_layer_;  // model indices
  const bool is_first_stage_, is_last_stage_;
  int64_t step_ = 0;
  double loss_sum_ = 0;
};

}  // namespace smp
