#pragma once

#include <sys/resource.h>

namespace smp::process {

// While one lives, this process may have as many files open as the system allows it: pipes and logs
// of each rank, and channels of each host, add up. What is started gets the limit of before.
class RaisedFileLimit {
 public:
  RaisedFileLimit();
  ~RaisedFileLimit();
  RaisedFileLimit(const RaisedFileLimit&) = delete;
  RaisedFileLimit& operator=(const RaisedFileLimit&) = delete;

  static rlimit before();
};

// Gives this process's table of open files at once the size that many ranks need. A table grows by
// doubling, and in a process of several threads each time waits for all CPUs to have let go of the
// old one, 5 to 20 ms: so call it while there is one thread. What is started gets a small table.
void reserve_file_table();

}  // namespace smp::process
