#pragma once

#include <string>

#include "smp/launcher/request/prepared_job.h"

namespace smp::launch {

// What --check and doctor print, and whether all is well.
struct Report {
  std::string text;
  bool ok = true;
};

// Reaches the hosts of a job, or looks at this one, and says what they lack for it. Starts no rank.
Report check_hosts(const request::PreparedJob& job);

}  // namespace smp::launch
