#pragma once

#include <sys/resource.h>

namespace smp {

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

}  // namespace smp
