#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "feed/data_source.h"
#include "smp/comm/communicator.h"
#include "smp/plan/spec/plan.h"
#include "smp/runtime/engine/engine.h"
#include "smp/runtime/parallel/groups.h"
#include "smp/runtime/record/metrics.h"

namespace smp::training {

// The evaluation of each held-out set, every training.evaluation.every_steps steps and after the
// last step. Its waiting time and traffic are not part of a step and are counted separately. Used
// by the rank's own thread; all arguments must outlive it.
class Evaluation {
 public:
  Evaluation(const Plan& plan, const feed::DataSource& data, parallel::RankGroups& groups);

  // The engine's reader: `of_steps`, or held-out samples while loss() runs.
  engine::ReadSamples reader(engine::ReadSamples of_steps);

  bool is_on() const { return every_steps_ > 0; }
  bool is_due(int64_t done, int64_t steps) const;  // after `done` of `steps` steps
  // Evaluates all sets and returns the first set's loss: the mean over its targets that count.
  // Collective; the same on all ranks. Throws TrainingError if no target counts, and whatever
  // Engine::evaluate throws.
  double loss(engine::Engine& engine);
  // The losses of the last loss(), by set in the order of the job.
  const std::vector<record::SetLoss>& losses() const { return losses_; }

  // The share of samples that the last loss() classified correctly.
  std::optional<double> accuracy() const { return accuracy_; }

  double waited_s() const { return waited_s_; }
  const std::vector<comm::TrafficCount>& traffic() const { return traffic_; }

 private:
  double loss_of(const std::string& set, engine::Engine& engine);

  const feed::DataSource& data_;
  parallel::RankGroups& groups_;
  const bool classifies_;
  std::optional<double> accuracy_;
  const int64_t every_steps_, global_batch_, batch_targets_, batches_;
  std::vector<record::SetLoss> losses_;  // by set of the data
  std::optional<size_t> held_out_;       // the set being read
  double waited_s_ = 0;
  std::vector<comm::TrafficCount> traffic_;
};

}  // namespace smp::training
