#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "smp/comm/communicator.h"
#include "smp/plan/mesh.h"
#include "smp/plan/plan.h"

namespace smp {

// The groups in which one rank's messages of a training step travel: its part of the mesh as
// communicators. Only groups of more than one rank that the plan uses are split off, in the order
// of the enum Axis, so that every rank makes its splits in the same order and none waits for a
// cycle. Used from the engine's thread. `world` must outlive it.
class RankGroups {
 public:
  RankGroups(const Plan& plan, const Mesh& mesh, Communicator& world);

  Communicator& world() const { return world_; }
  // The group along `axis`, or nullptr where this rank is alone in it or the plan has no use for
  // it.
  Communicator* find(Axis axis) const;
  // The group along `axis`; a bug in smp when there is none.
  Communicator& at(Axis axis) const;

  // Ends every waiting call of every group, here and at the peers.
  void abort(const std::string& reason);

  // Of all groups together, sorted by label and op; rows of one label, op and size are one.
  std::vector<TrafficCount> traffic() const;
  int64_t segment_bytes() const;

 private:
  Communicator& world_;
  std::map<Axis, std::unique_ptr<Communicator>> groups_;
};

// Axes along which the ranks of this plan talk, in the order of their splits. kWorld is not listed.
std::vector<Axis> used_axes(const Plan& plan);

}  // namespace smp
