#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "smp/comm/communicator.h"
#include "smp/plan/mesh/mesh.h"
#include "smp/plan/spec/plan.h"
#include "smp/runtime/parallel/timed_communicator.h"

namespace smp::parallel {

// The communicators of one rank's training step, one for each axis of the mesh. They are split off
// in the order of rank_groups(), the same on all ranks, so that no two ranks wait for each other.
// With NCCL each group uses the collectives that the plan names for its axis. All groups add their
// waiting time to one clock. Used from the engine's thread. `world` and `among_gpus`, the same
// ranks by NCCL, must outlive it.
class RankGroups {
 public:
  RankGroups(const Plan& plan, comm::Communicator& world, comm::Communicator* among_gpus = nullptr);
  RankGroups(const RankGroups&) = delete;
  RankGroups& operator=(const RankGroups&) = delete;

  comm::Communicator& world() { return *world_; }
  // The group along `axis`; nullptr if this rank is alone in it or the plan does not use it.
  comm::Communicator* find(mesh::Axis axis);
  // The group along `axis`, which must exist.
  comm::Communicator& at(mesh::Axis axis);
  // Whether calls of the group along `axis` go from GPU to GPU (NCCL), not through host memory.
  bool is_among_gpus(mesh::Axis axis) const { return axes_among_gpus_.contains(axis); }

  double waited_s() const { return clock_.seconds(); }
  double exposed_s() const { return clock_.exposed_seconds(); }
  // Posts the rank's calls and waits from now on.
  void post_progress(runinfo::ProgressPost& post) { clock_.post = &post; }
  // Traces the rank's calls and waits from now on; the tracer must outlive all calls.
  void trace(runinfo::StepTracer& tracer) { clock_.tracer = &tracer; }
  runinfo::StepTracer* tracer() { return clock_.tracer; }  // null: there is none

  // Ends every waiting call of every group, here and on all ranks: a failure of the world is one of
  // all groups split from it. The first failure stands, so all ranks blame the same rank.
  void abort(const std::string& reason);

  std::vector<comm::TrafficCount> traffic() const;  // of all groups together
  int64_t segment_bytes() const;                    // of all groups together

 private:
  WaitClock clock_;
  TimedCommunicator by_host_;
  std::optional<TimedCommunicator> among_gpus_;
  std::set<mesh::Axis> axes_among_gpus_;
  TimedCommunicator* world_;  // by_host_ or *among_gpus_
  std::map<mesh::Axis, std::unique_ptr<comm::Communicator>> groups_;
};

}  // namespace smp::parallel
