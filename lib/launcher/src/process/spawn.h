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
  std::string variable{};  // one more environment variable; empty: none
  int in = -1, out = -1, err = -1;
  sigset_t signal_mask;
  rlimit open_files;
  const cpu_set_t* cpus = nullptr;  // CPUs of the child; nullptr: those of this process
  int group = -1;  // folder of the control group to start the child in, if possible; -1: ours
};

// Starts processes, each in its own session, that die with the calling thread.
//
// A child shares the memory of this process (CLONE_VM), with its own stack, until it executes its
// program. No page tables are copied, so a child costs half of a fork(). A child that fails leaves
// its errno in this memory, without a pipe. vfork() would wait for each child in turn: on busy CPUs
// for as long as the child waits for a CPU. One thread.
class Spawner {
 public:
  Spawner();
  ~Spawner();  // keeps the memory of a child that has neither executed its program nor ended
  Spawner(const Spawner&) = delete;
  Spawner& operator=(const Spawner&) = delete;

  // Does not wait until the program is executed: before that the child can still be in the session
  // of this process. Returns the child's pid, or -1 with errno set.
  pid_t begin(const ChildSetup& setup);

  // As begin(), but waits, and also returns -1 with errno set if the program cannot be executed.
  pid_t spawn(const ChildSetup& setup);

  // The errno of an ended child that could not execute its program; nothing if it could.
  std::optional<int> take_error(pid_t child);

 private:
  struct Child;
  Child& vacant_child();

  std::deque<std::unique_ptr<Child>> children_;  // the oldest first
};

// Sends the signal to a process that a Spawner began and that was not waited for, and to its
// process group. Returns false if all these processes belong to another user now.
bool signal_group(pid_t pid, int signal);

}  // namespace smp::process
