#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "smp/plan/jobfile/forbid.h"
#include "smp/planner/choice/layout_choice.h"

namespace smp::choice {

// What `parallel.forbid` rules out (smp/plan/jobfile/forbid.h), for layouts. Immutable.
class Forbidden {
 public:
  // Throws ConfigError for an entry that means nothing.
  explicit Forbidden(const std::vector<std::string>& entries);
  bool matches(const LayoutChoice& choice) const;
  bool empty() const { return entries_.empty(); }

 private:
  std::vector<std::vector<jobfile::ForbiddenValue>> entries_;
};

}  // namespace smp::choice
