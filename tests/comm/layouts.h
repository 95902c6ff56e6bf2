#pragma once

#include <functional>

#include "comm/fake_network.h"
#include "comm/values.h"
#include "smp/comm/jobs/thread_group.h"

// The same program on one host and on several.
namespace smp::testing {

struct Grid {
  int hosts, per_host;
};
inline constexpr Grid kGrids[] = {{2, 1}, {2, 2}, {3, 1}, {4, 2}};

inline void everywhere(const std::function<void(comm::Communicator&)>& program) {
  for (const int size : kSizes) jobs::run_ranks(size, program);
  for (const Grid& grid : kGrids) run_hosts(grid.hosts, grid.per_host, program);
}

}  // namespace smp::testing
