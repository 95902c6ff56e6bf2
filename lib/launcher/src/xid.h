#pragma once

#include <sys/types.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "smp/launcher/file_descriptor.h"

// Errors of NVIDIA's GPUs and of the programs on them, as the driver writes them to the kernel's
// log: "NVRM: Xid (PCI:0000:3b:00): 79, pid=123, GPU has fallen off the bus." `root` stands before
// /dev and /proc, for tests.
namespace smp {

struct Xid {
  int number = 0;
  pid_t pid = 0;     // that the driver names; 0: none
  std::string text;  // "Xid (PCI:0000:3b:00): 79, pid=123, GPU has fallen off the bus."
};

std::optional<Xid> xid_in(const std::string& line);

// As nvidia-smi numbers it; -1: not known.
int gpu_of(const Xid& xid, const std::string& root);

// What is logged from now on. Sees nothing where the log may not be read, as in most containers.
class XidWatch {
 public:
  explicit XidWatch(std::string root = "");
  void add(pid_t rank) { ranks_.insert(rank); }
  // "GPU 3: Xid ...", the last few that do not name another rank.
  std::vector<std::string> about(pid_t rank);

 private:
  void read_on();

  std::string root_;
  FileDescriptor log_;
  std::set<pid_t> ranks_;
  std::vector<Xid> seen_;
};

}  // namespace smp
