#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "smp/plan/layout/schedule_of_plan.h"
#include "smp/plan/spec/plan.h"
#include "smp/runtime/engine/step_result.h"
#include "smp/runtime/parallel/parallelize.h"

namespace smp::engine {

// The loss or the gradient norm is not finite; nothing was updated. All ranks throw the same error.
class NotFinite : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// No target of the global batch counts in the loss; nothing was updated. All ranks throw the same
// error.
class NoTargetCounts : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The end of a step: the ranks all-reduce norm and loss, decide alike, and each updates the
// elements that it owns, bucket by bucket. If an update needs nothing from the other gradients
// (why_updates_wait()), a bucket is updated before that all-reduce. Used by the engine's thread;
// plan and model must outlive it.
class StepUpdate {
 public:
  StepUpdate(const Plan& plan, parallel::ParallelModel& model);

  void begin(int64_t step, double learning_rate);

  // Sums the squares of the reduced gradients of a bucket and its experts. agree() does so for
  // buckets whose gradients nobody reduces.
  void start_norms(int64_t bucket);

  // Updates a reduced bucket and its experts. A skipped step updates nothing. A bucket whose sum of
  // squares on this rank is not finite is not updated either; such a step fails in agree().
  void update(int64_t bucket);

  // Collective over the world. `loss`: the sum over this rank's microbatches, without the loss
  // scale, which the gradients still have; `further`: of each further token. `counted`: the number
  // of their targets that count. Throws NotFinite, NoTargetCounts, and whatever
  // LossScale::step_done throws.
  StepResult agree(double loss, const std::vector<double>& further, int64_t counted);

 private:
  int32_t experts_of(int64_t bucket) const;  // which go with the bucket; -1 = none
  double clipping(double norm) const;
  double mean_correction(double counted) const;
  void add_router_loads();
  std::vector<record::RouterMetrics> router_metrics() const;

  const Plan& plan_;
  parallel::ParallelModel& model_;
  const std::vector<model::LayerSpec> layers_;  // of the model
  const bool early_;                            // update() is called before agree()
  const bool counts_vary_;       // the number of targets that count varies, so it is summed too
  std::vector<double> sums_;     // as layout::step_sums() says
  std::vector<bool> has_norms_;  // by bucket: the norms of this step were started

  // of the current step
  int64_t step_ = 0;
  double learning_rate_ = 0;
  bool has_begun_ = false;  // Optimizer::begin() was called
  bool skips_ = false;
};

}  // namespace smp::engine
