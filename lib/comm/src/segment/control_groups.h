#pragma once

#include <string>
#include <vector>

namespace smp::segment {

// A control group that this process is in, or a parent of one.
struct ControlGroup {
  std::string mount;   // "/sys/fs/cgroup" of v2, "/sys/fs/cgroup/memory" of v1
  std::string path;    // below `mount`; "" is the root, which is how a container sees its own
  std::string folder;  // the folder of its files
  bool is_v2;
};

// Those that may limit what `controller` ("cpu", "memory") counts, inner ones first. `root` is put
// before all file names, for tests.
std::vector<ControlGroup> control_groups(const std::string& controller, const std::string& root);

}  // namespace smp::segment
