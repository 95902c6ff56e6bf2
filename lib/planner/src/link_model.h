#pragma once

#include <cstdint>
#include <vector>

#include "smp/plan/job_spec.h"
#include "smp/plan/traffic.h"

namespace smp {

// Seconds of `amount` at `rate`; a rate of 0 is unknown and costs nothing.
inline double over(double amount, double rate) { return rate > 0 ? amount / rate : 0; }

// Where the members of a group sit.
struct Placement {
  int64_t size = 1;
  int64_t hosts = 1;  // over which they spread
  int64_t most_on_a_host = 1;
};
Placement placement_of(const std::vector<int64_t>& ranks, int64_t processes_per_host);

// Seconds of all calls of one row of traffic. Inside a host every rank sends its wire bytes over
// its own link. Between hosts the bytes that must enter a host enter it once and are passed on
// inside, so that the members of a host share the host's links; an all-reduce is a reduce-scatter
// and an all-gather. A rate of 0 is unknown and costs nothing.
double seconds_of(const Traffic& row, const Placement& placement, const ClusterSpec& cluster);

}  // namespace smp
