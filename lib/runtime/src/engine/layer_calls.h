#pragma once

#include <cstdint>

#include "engine/finite_check.h"
#include "engine/microbatch.h"
#include "parallel/stage_map.h"
#include "smp/plan/model/layers.h"
#include "smp/plan/schedule/schedule.h"
#include "smp/plan/spec/plan.h"
#include "smp/runtime/engine/read_samples.h"
#include "smp/runtime/parallel/parallelize.h"

namespace smp::engine {

// Runs the forward, the backward and the weight gradients of one layer for one microbatch. Between
// these calls it keeps the saved tensors, or the inputs from which they are recomputed, on the
// device or on the host. It passes activations and gradients between two chunks of this stage;
// PipelineMessages carries them between stages. Used by the engine's thread.
class LayerCalls {
 public:
  LayerCalls(const Plan& plan, parallel::ParallelModel& model, Microbatches& microbatches,
             ReadSamples read_samples);

  // With `evaluates` forwards save nothing.
  void begin_step(int64_t step, bool evaluates);
  // Multiplies all gradients of the step by the loss scale (fp16).
  void scale_loss(double loss_scale) { loss_scale_ = loss_scale; }
  // Passes every output and gradient to `check` from now on; nullptr = none.
  void watch(FiniteCheck* check) { check_ = check; }
  void forward(const schedule::Action& action);
  void backward(const schedule::Action& action);
  void weight(const schedule::Action& action);
  void recompute(const schedule::Action& action);
  void offload(const schedule::Action& action);
  void fetch(const schedule::Action& action);

  // The sum of the mean losses of this rank's microbatches so far, scaled to the global batch,
  // without the loss scale.
  double loss() const { return loss_sum_ * mean_factor(); }
  // Of each layer that predicts a further token, likewise.
  std::vector<double> further_losses() const;
  // The number of targets, or labels, read so far that count in the loss.
  int64_t counted() const { return counted_; }
  double correct() const { return correct_; }  // samples classified correctly, if the model counts

 private:
  SavedCall& call_of(const schedule::Action& action);
  static void move(SavedCall& call, at::Device to);
  std::vector<at::Tensor> run(const schedule::Action& action, const std::vector<at::Tensor>& inputs,
                              layers::Saved* saved);
  int64_t first_sample_of(const schedule::Action& action) const;
  kernels::CallContext context_of(const schedule::Action& action);
  void read(const parallel::LayerPosition& place, const schedule::Action& action, InFlight& flight);
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
  std::vector<int64_t> shared_inputs_;  // by layer of the stage: inputs that other layers also use
  int64_t step_ = 0;
  bool evaluates_ = false;
  double loss_scale_ = 1;
  FiniteCheck* check_ = nullptr;
  double loss_sum_ = 0, correct_ = 0;
  std::vector<double> further_sums_;
  int64_t counted_ = 0;
};

}  // namespace smp::engine
