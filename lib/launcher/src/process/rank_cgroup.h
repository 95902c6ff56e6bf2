#pragma once

#include <sys/types.h>

#include <string>

#include "smp/plan/system/file_descriptor.h"

namespace smp::process {

// The control group (cgroup v2) of a host's ranks. Through the group the kernel kills all processes
// that the ranks have started, in any session and however fast they fork (cgroup.kill, Linux 5.14).
// The group lies below the group of this process, which must be delegated: a unit of systemd with
// Delegate=yes, a user's own session, or a container with its own groups. Ranks start inside the
// group (CLONE_INTO_CGROUP), because moving a process takes some 10 ms.
class RankCgroup {
 public:
  // Makes a group. The result is not open if none can be made.
  static RankCgroup make();
  // The group that the process `owner`, a child in our group, has made. Not open: none.
  static RankCgroup of(pid_t owner);

  RankCgroup(RankCgroup&&) = default;
  ~RankCgroup();  // removes the group; the kernel refuses that while the group has processes

  int folder() const { return folder_.number(); }  // -1: not open
  // Kills all processes. Returns their number, without those in further groups below this group.
  int kill() const;

 private:
  explicit RankCgroup(std::string path);

  std::string path_;
  system::FileDescriptor folder_;
};

}  // namespace smp::process
