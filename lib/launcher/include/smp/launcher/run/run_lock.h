#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "smp/plan/system/file_descriptor.h"

namespace smp::run {

// Keeps a run's folder for one smp-launch, by a lock of the file system on the file `lock` in it.
// The file names its holder. The lock lives as long as the process that took it, or one that it has
// forked, and goes with them however they end. The text stays where they were killed. Some file
// systems have no locks, or have them for each host alone. There the text counts: for a process of
// this host while it runs, for another host while the run's status is still being written.
class RunLock {
 public:
  static constexpr const char* kFile = "lock";

  // Throws ConfigError, with host, process and time, where another one has it.
  explicit RunLock(const std::string& folder);
  ~RunLock();  // in the process that took it: removes the file
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  // Why the folder cannot be taken; empty: nobody has locked it. Changes nothing, and does not
  // wait.
  static std::string why_not(const std::string& folder);

  // Waits for one whose first process was killed, here, while its second one ends the ranks: it is
  // gone soon.
  static void await_end(const std::string& folder);

  // Whether the one that has left its name in the folder is gone for certain: this host was started
  // anew since, or has no such process, or another one by its number. False where nothing tells.
  static bool is_left(const std::string& folder);

  // The folder in which the locked file is now; it may have been moved. Empty: it was removed.
  std::string folder_now() const;

  // What to tell of a holder that was taken for gone without a proof; empty: nothing.
  const std::string& note() const { return note_; }

 private:
  std::string path_;
  system::FileDescriptor file_;
  pid_t owner_;
  std::string note_;
};

}  // namespace smp::run
