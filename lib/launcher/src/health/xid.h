#pragma once

#include <sys/types.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "smp/plan/system/file_descriptor.h"

// Errors of NVIDIA's GPUs and of the programs on them, as the driver writes them to the kernel's
// log: "NVRM: Xid (PCI:0000:3b:00): 79, pid=123, GPU has fallen off the bus." `root` stands before
// /dev and /proc, for tests.
namespace smp::health {

struct Xid {
  int number = 0;
  pid_t pid = 0;     // that the driver names, as the machine numbers it; 0: none
  std::string text;  // "Xid (PCI:0000:3b:00): 79, pid=123, GPU has fallen off the bus."
};

std::optional<Xid> xid_in(const std::string& line);

// As nvidia-smi numbers it; -1: not known.
int gpu_of(const Xid& xid, const std::string& root);

// What is logged from now on. Sees nothing where the log may not be read, as in most containers.
// The driver may name a rank's descendant: whose it is must be found out while that lives.
class XidWatch {
 public:
  explicit XidWatch(std::string root = "");
  void add(pid_t rank) { ranks_.insert(rank); }
  int log() const { return log_.number(); }  // becomes readable; -1: none
  void read_on();
  // "GPU 3: Xid ...", the last few, but for those of another rank; in a pid namespace, whose
  // numbers are others, those that name no process.
  std::vector<std::string> about(pid_t rank);

 private:
  pid_t rank_of(pid_t process) const;  // that it is, or descends from; 0: none, or it has gone

  std::string root_;
  system::FileDescriptor log_;
  const bool knows_processes_;  // as the driver numbers them
  std::set<pid_t> ranks_;
  struct Seen {
    Xid xid;
    pid_t rank = 0;
  };
  std::vector<Seen> seen_;
};

}  // namespace smp::health
