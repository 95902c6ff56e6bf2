#pragma once

#include <string>
#include <vector>

namespace smp::shm {

// One of the control groups that this process is in, or that these are part of.
struct ControlGroup {
  std::string mount;   // "/sys/fs/cgroup" of v2, "/sys/fs/cgroup/memory" of v1
  std::string path;    // below it; "" is the root, as which a container sees its own
  std::string folder;  // of its files
  bool is_v2;
};

// Those that may limit what `controller` ("cpu", "memory") counts, inner ones first. `root` stands
// before all names of files, for tests.
std::vector<ControlGroup> control_groups(const std::string& controller, const std::string& root);

}  // namespace smp::shm
