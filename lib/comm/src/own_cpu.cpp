#include "own_cpu.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>

namespace smp::shm {

int current_cpu() { return sched_getcpu(); }

bool leave_cpu(const std::vector<int>& taken) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return false;
  const int own = current_cpu();
  int nearest = -1;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    const bool is_free = CPU_ISSET(cpu, &allowed) && cpu != own &&
                         std::find(taken.begin(), taken.end(), cpu) == taken.end();
    if (is_free && (nearest < 0 || std::abs(cpu - own) < std::abs(nearest - own))) nearest = cpu;
  }
  if (nearest < 0) return false;
  cpu_set_t there;
  CPU_ZERO(&there);
  CPU_SET(nearest, &there);
  const bool has_moved = sched_setaffinity(0, sizeof(there), &there) == 0;
  return has_moved && sched_setaffinity(0, sizeof(allowed), &allowed) == 0;
}

}  // namespace smp::shm
