#pragma once

#include <vector>

#include "smp/launcher/launch/check.h"

namespace smp {

// The checks of a job, in order. They change nothing on disk and start nothing.
std::vector<launch::Check> checks_of(const request::PreparedJob& job);

// A plan's job, as the planner and its checkpoints prove it.
class PlannerChecks : public launch::PlanChecks {
 public:
  void require(const request::PreparedJob& job) const override;
  bool is_complete(const request::PreparedJob& job) const override;
};

}  // namespace smp
