#pragma once

#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace smp::process {

struct ChildSetup {
  const std::vector<std::string>* arguments = nullptr;  // the first is the program
  const std::vector<std::string>* environment = nullptr;
  std::string variable{};  // one more of the environment; empty: none
  int in = -1, out = -1, err = -1;
  sigset_t signal_mask;
  rlimit open_files;
  const cpu_set_t* cpus = nullptr;  // that it may run on; nullptr: those of this process
  int group = -1;  // folder of the control group that it is born in, if that takes it; -1: ours
};

// Starts processes, each in a session of its own, that die with the calling thread.
//
// Until it executes its program a child shares the memory of this process (CLONE_VM), on a stack of
// its own: nothing is copied, so a child costs half of what fork() does, and a child that fails
// leaves its errno here, without a pipe. Not vfork, which waits for the child: where all CPUs are
// busy, as long as it takes the child to get one, and for one child after the other. One thread.
class Spawner {
 public:
  Spawner();
  ~Spawner();  // of a child that has neither executed a program nor ended, the memory stays
  Spawner(const Spawner&) = delete;
  Spawner& operator=(const Spawner&) = delete;

  // Does not wait until the program is executed: until then the child may still be in the session
  // of this process. Returns its pid, or -1 with errno set.
  pid_t begin(const ChildSetup& setup);

  // The same, but waits, and returns -1 with errno set also when the program cannot be executed.
  pid_t spawn(const ChildSetup& setup);

  // Why the child, which has ended, could not execute its program; nothing: it could.
  std::optional<int> take_error(pid_t child);

 private:
  struct Child;
  Child& vacant_child();

  std::deque<std::unique_ptr<Child>> children_;  // the oldest first
};

// To the process that a Spawner began, which nobody has waited for yet, and to its group. False:
// all of them belong to another user by now.
bool signal_group(pid_t pid, int signal);

}  // namespace smp::process
