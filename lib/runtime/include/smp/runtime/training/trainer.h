#pragma once

#include <cstdint>
#include <vector>

#include "smp/comm/communicator.h"
#include "smp/plan/spec/plan.h"
#include "smp/runtime/record/run_report.h"
#include "smp/runtime/training/train_options.h"

namespace smp::training {

// The result of a run; the same on every rank except `mine`.
struct RunResult {
  int64_t first_step = 0;          // steps done before this start, when resumed
  bool ended_on_request = false;   // ended after a checkpoint, before the last step
  std::vector<double> losses;      // of each step
  std::vector<double> grad_norms;  // before clipping
  std::vector<double> step_s;
  std::vector<record::RouterMetrics> routers;  // of the last step, by layer with experts
  record::RunMeasurements run;
  record::RankMeasurements mine;
  std::vector<record::RankMeasurements> ranks;  // in rank order
};

// Trains the plan as rank world.rank(). Collective over `world`. The rank's memory is limited to
// the plan's cluster.memory_per_process_bytes. Throws ConfigError for a plan that the engine cannot
// run (engine_rules.h), and whatever Engine::step throws. Aborts `world` before an exception
// leaves, so that the peers learn the cause.
RunResult train(const Plan& plan, comm::Communicator& world, const TrainOptions& options);

}  // namespace smp::training
