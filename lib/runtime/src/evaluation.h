#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "data_source.h"
#include "smp/comm/communicator.h"
#include "smp/plan/plan.h"
#include "smp/runtime/engine.h"
#include "smp/runtime/groups.h"

namespace smp {

// The loss of data that are held out, every training.evaluation.every_steps steps and after the
// last one. What it waits for and sends is no part of a step, and counted apart. Used by the rank's
// own thread; all arguments must outlive it.
class Evaluation {
 public:
  Evaluation(const Plan& plan, const DataSource& data, RankGroups& groups);

  // What the engine reads: the data of the step, or what is held out while loss() runs.
  ReadSamples reader();

  bool is_on() const { return every_steps_ > 0; }
  bool is_due(int64_t done, int64_t steps) const;  // after `done` of `steps` steps
  double loss(Engine& engine);                     // collective; the same on all ranks

  // With the last loss(): the share of the samples that were classified right.
  std::optional<double> accuracy() const { return accuracy_; }

  double waited_s() const { return waited_s_; }
  const std::vector<TrafficCount>& traffic() const { return traffic_; }

 private:
  const DataSource& data_;
  RankGroups& groups_;
  const bool classifies_;
  std::optional<double> accuracy_;
  const int64_t every_steps_, global_batch_, samples_, batches_;
  bool reads_held_out_ = false;
  double waited_s_ = 0;
  std::vector<TrafficCount> traffic_;
};

}  // namespace smp
