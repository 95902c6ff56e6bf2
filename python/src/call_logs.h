#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "smp/comm/call_log.h"

namespace smp::pytorch {

inline constexpr size_t kCallsSaid = 32;  // of a group, when it fails or somebody asks

// What the process groups of this process were at, for people. Any thread.
class CallLogs {
 public:
  // `place`: "process group 3".
  void add(std::string place, const std::shared_ptr<const comm::CallLog>& log);
  // The last `most` calls of each group that has not ended, in the order in which they were made.
  std::string text(size_t most) const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::pair<std::string, std::weak_ptr<const comm::CallLog>>> logs_;
};

// The only one: a signal knows no object.
CallLogs& call_logs();

// From now on this signal has the process print text(kCallsSaid) to standard error, whatever its
// threads do; by a thread of its own, and blocked in all others. Children made by fork are left
// alone. Throws
// std::invalid_argument: "smp: there is no signal 99 to print calls on", and for another signal
// than an earlier one.
void print_calls_on(int signal);

}  // namespace smp::pytorch
