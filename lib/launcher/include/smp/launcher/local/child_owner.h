#pragma once

#include <sys/types.h>

#include <chrono>
#include <set>

#include "smp/launcher/job/host.h"

namespace smp::local {

// Whoever else has children in the process of a LocalHost, which collects them all.
class ChildOwner {
 public:
  virtual ~ChildOwner() = default;
  virtual std::set<pid_t> children() const = 0;
  virtual void on_child_end(pid_t child, const process::ProcessEnd& end) = 0;  // it was waited for
};

// A Host whose processes are children of this process.
class ProcessHost : public job::Host {
 public:
  // From now on take_usage() has a sample so often, at most.
  virtual void sample_usage(std::chrono::milliseconds every) = 0;
  virtual void set_neighbour(ChildOwner* neighbour) = 0;  // nullptr: none any more
};

}  // namespace smp::local
