#pragma once

#include <cstdint>

#include "engine/finite_check.h"
#include "engine/microbatch.h"
#include "parallel/stage_map.h"
#include "smp/plan/model/layers.h"
#include "smp/plan/schedule/schedule.h"
#include "smp/plan/spec/plan.h"
#include "smp/runtime/engine/engine.h"
#include "smp/runtime/parallel/parallelize.h"

namespace smp::engine {

// Runs the forward, the backward and the weights' gradients of single layers for single
// microbatches, and keeps between them what the later ones need: all of it, or the inputs to
// compute it again from, here or on the host. Between two chunks of this stage it hands activations
// and gradients over; those of other stages are messages. Used by the engine's thread.
class LayerCalls {
 public:
  LayerCalls(const Plan& plan, parallel::ParallelModel& model, Microbatches& microbatches,
             ReadSamples read_samples);

  // With `evaluates` forwards keep nothing.
  void begin_step(int64_t step, bool evaluates);
  // fp16's, with which all gradients of the step are multiplied.
  void scale_loss(double loss_scale) { loss_scale_ = loss_scale; }
  // Every output and gradient is shown to `check` from now on; nullptr = to nobody.
  void watch(FiniteCheck* check) { check_ = check; }
  void forward(const schedule::Action& action);
  void backward(const schedule::Action& action);
  void weight(const schedule::Action& action);
  void recompute(const schedule::Action& action);
  void offload(const schedule::Action& action);
  void fetch(const schedule::Action& action);

  // Of this rank's microbatches so far: the sum of their mean losses, scaled to the global batch;
  // without the loss scale.
  double loss() const { return loss_sum_ * mean_factor(); }
  // Of the targets, or labels, that were read so far, those that count in the loss.
  int64_t counted() const { return counted_; }
  double correct() const { return correct_; }  // samples, where the model counts them

 private:
  KeptCall& call_of(const schedule::Action& action);
  static void move(KeptCall& call, at::Device to);
  std::vector<at::Tensor> run(const schedule::Action& action, const std::vector<at::Tensor>& inputs,
                              layers::Saved* saved);
  int64_t first_sample_of(const schedule::Action& action) const;
  kernels::CallContext context_of(const schedule::Action& action);
  void read(const parallel::LayerPlace& place, const schedule::Action& action, InFlight& flight);
  void check_integers(model::BatchField field, const at::Tensor& tensor, int64_t first_sample);
  void check_documents(const at::Tensor& starts) const;
  [[noreturn]] void refuse_missing_target(int64_t sample) const;
  double mean_factor() const;

  const Plan& plan_;
  parallel::ParallelModel& model_;
  Microbatches& microbatches_;
  ReadSamples read_;
  const parallel::StageMap map_;
  const int64_t micro_batch_, microbatch_count_, data_rank_;
  const model::LayerCall call_;
  std::vector<size_t> shared_inputs_;  // by layer of the stage
  int64_t step_ = 0;
  bool evaluates_ = false;
  double loss_scale_ = 1;
  FiniteCheck* check_ = nullptr;
  double loss_sum_ = 0, correct_ = 0;
  int64_t counted_ = 0;
};

}  // namespace smp::engine
