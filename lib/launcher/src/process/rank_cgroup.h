#pragma once

#include <sys/types.h>

#include <string>

#include "smp/plan/system/file_descriptor.h"

namespace smp::process {

// The control group (cgroup v2) of a host's ranks, so that the kernel ends with one word all that
// they have started, whatever session it is in and however fast it forks (cgroup.kill, Linux 5.14).
// It lies below the group of this process, where that is delegated to it: a unit of systemd with
// Delegate=yes, a user's own session, a container with groups of its own. Ranks are born in it
// (CLONE_INTO_CGROUP), as to move a process takes some 10 ms.
class RankCgroup {
 public:
  // A new one. Not open where none can be made.
  static RankCgroup make();
  // What the process `owner`, a child that shares our group, had made. Not open: it had none.
  static RankCgroup of(pid_t owner);

  RankCgroup(RankCgroup&&) = default;
  ~RankCgroup();  // removes it, which the kernel does not allow while processes live in it

  int folder() const { return folder_.number(); }  // -1: not open
  // Returns how many processes it had, but for those in groups that they have made below it.
  int kill() const;

 private:
  explicit RankCgroup(std::string path);

  std::string path_;
  system::FileDescriptor folder_;
};

}  // namespace smp::process
