#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace smp::process {

struct Kin {
  pid_t parent = 0, session = 0;  // 0: it has gone; a dead one that nobody has waited for has both
  bool dead = false;
};

// Of the process with this folder of /proc.
Kin kin_of(const std::string& folder);

// Processes whose parent is this process, dead ones that nobody has waited for included.
std::vector<pid_t> children_of_this_process();

struct Sweep {
  int ended = 0;            // how many were killed
  std::vector<pid_t> left;  // those that did not die in time
};

// Kills and reaps the children of this process again and again, until none is left: a subreaper
// inherits the children of those it kills, so all descendants go, whatever session they are in.
// Spares `spared`. Gives up after `patience`: a process can hang inside the kernel. Calls on_wait()
// before each of its pauses, of at most 50 ms.
Sweep end_descendants(
    const std::set<pid_t>& spared, std::chrono::milliseconds patience,
    const std::function<void()>& on_wait = [] {});

// Asks the processes of a session to end, and kills those that are left after `patience`. Its
// leader is a child of ours that was not waited for, so the number is nobody else's.
void end_session(pid_t session, std::chrono::milliseconds patience);

}  // namespace smp::process
