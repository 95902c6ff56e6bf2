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

// The loss of data that are held out, of each set, every training.evaluation.every_steps steps and
// after the last one. What it waits for and sends is no part of a step, and counted apart. Used by
// the rank's own thread; all arguments must outlive it.
class Evaluation {
 public:
  Evaluation(const Plan& plan, const feed::DataSource& data, parallel::RankGroups& groups);

  // What the engine reads: `of_steps`, or what is held out while loss() runs.
  engine::ReadSamples reader(engine::ReadSamples of_steps);

  bool is_on() const { return every_steps_ > 0; }
  bool is_due(int64_t done, int64_t steps) const;  // after `done` of `steps` steps
  // Mean over what counts of the held-out samples, of the first set where there are several.
  // Collective; the same on all ranks. Throws TrainingError where nothing counts, and what
  // Engine::evaluate throws.
  double loss(engine::Engine& engine);
  // With the last loss(): of each set, in the order of the job.
  const std::vector<record::SetLoss>& losses() const { return losses_; }

  // With the last loss(): the share of the samples that were classified right.
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
  std::optional<size_t> held_out_;       // the set that is read now
  double waited_s_ = 0;
  std::vector<comm::TrafficCount> traffic_;
};

}  // namespace smp::training
