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

// The groups in which one rank's messages of a training step travel: its part of the mesh as
// communicators, split off in the order of rank_groups(), so that no two ranks wait for each other.
// With GPUs that talk among themselves each group goes the way that the plan has for its axis. All
// add the time that is spent waiting to one clock. Used from the engine's thread. `world` and
// `among_gpus`, the same ranks by NCCL, must outlive it.
class RankGroups {
 public:
  RankGroups(const Plan& plan, comm::Communicator& world, comm::Communicator* among_gpus = nullptr);
  RankGroups(const RankGroups&) = delete;
  RankGroups& operator=(const RankGroups&) = delete;

  comm::Communicator& world() { return *world_; }
  // The group along `axis`, or nullptr where this rank is alone in it or the plan has no use for
  // it.
  comm::Communicator* find(mesh::Axis axis);
  // The group along `axis`; a bug in smp when there is none.
  comm::Communicator& at(mesh::Axis axis);
  // Whether calls of the group along `axis` go between GPUs, not by their hosts.
  bool is_among_gpus(mesh::Axis axis) const { return axes_among_gpus_.contains(axis); }

  double waited_s() const { return clock_.seconds(); }
  double exposed_s() const { return clock_.exposed_seconds(); }
  // From now on the rank's calls and waits are posted.
  void post_progress(runinfo::ProgressPost& post) { clock_.post = &post; }
  // The same for the timeline of the steps that it is told to record; it must outlive all calls.
  void trace(runinfo::StepTracer& tracer) { clock_.tracer = &tracer; }
  runinfo::StepTracer* tracer() { return clock_.tracer; }  // null: there is none

  // Ends every waiting call of every group, here and at all ranks: the world's failure is that of
  // all groups split from it, and the first one stands, so that everybody blames the same rank.
  void abort(const std::string& reason);

  std::vector<comm::TrafficCount> traffic() const;  // of all groups together
  int64_t segment_bytes() const;                    // of all groups together

 private:
  WaitClock clock_;
  TimedCommunicator by_host_;
  std::optional<TimedCommunicator> among_gpus_;
  std::set<mesh::Axis> axes_among_gpus_;
  TimedCommunicator* world_;  // one of both
  std::map<mesh::Axis, std::unique_ptr<comm::Communicator>> groups_;
};

}  // namespace smp::parallel
