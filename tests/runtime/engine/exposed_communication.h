#pragma once

#include <cstdint>

#include "smp/plan/spec/plan.h"

namespace smp {

// Communication of a step that computing does not hide: layers take a fixed time, and a link of
// fixed bandwidth takes half of the step's computing for all that the plan's step sends. Means over
// steps and ranks, the first two steps left out.
struct ExposedCommunication {
  double compute_s = 0;
  double communication_s = 0;  // of the link, whatever computes meanwhile
  double exposed_s = 0;        // that the ranks wait

  double share() const { return exposed_s / communication_s; }
};

struct ExposureOptions {
  double pass_s = 0.002;  // of a block's forward, input gradients, weight gradients
  bool virtual_time = true;
  int64_t reduced_per_computed = 0;  // of the schedule; 0: the plan's own
};

// 22 blocks on 4 ranks with the one switch. `replicas`: of the shards (hybrid sharding).
Plan exposure_plan(Sharding sharding, int64_t replicas = 1);

ExposedCommunication exposed_communication(const Plan& plan, const ExposureOptions& options);

// Of that link: seconds of a call, apart from its wire bytes; and the bytes that it carries.
inline constexpr double kLinkLatency = 20e-6;
double link_bytes_per_s(const Plan& plan, const ExposureOptions& options);

}  // namespace smp
