#pragma once

#include <string>
#include <vector>

// The control groups (cgroups) of this process: what limits its CPUs and its memory. Versions 1 and
// 2 of the kernel's interface, also both at once. The functions read /proc/self/cgroup at each
// call. Any thread.
namespace smp::system {

// A control group that contains this process: its own group or a parent of that.
struct ControlGroup {
  std::string mount;   // "/sys/fs/cgroup" of v2, "/sys/fs/cgroup/memory" of v1
  std::string path;    // below `mount`; "" is the root, which is how a container sees its own
  std::string folder;  // the folder of its files
  bool is_v2;
};

// The groups that may limit what `controller` ("cpu", "memory") counts, inner ones first. Tests put
// `root` before all file names.
std::vector<ControlGroup> control_groups(const std::string& controller,
                                         const std::string& root = "");

// The readable files of the control groups that account for this process's memory: `unified` in the
// hierarchy of v2, `legacy` in the memory controller's of v1. They are those of the process's own
// group, or of the root where a container shows only that.
std::vector<std::string> own_group_files(const std::string& unified, const std::string& legacy);

}  // namespace smp::system
