#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "smp/launcher/job/job.h"

namespace smp::supervision {

// One start of a job's ranks, and its end.
struct Start {
  std::string from;  // the checkpoint that it went on from; empty: the beginning
  job::JobEnd end = job::JobEnd::kSuccess;
  int exit_code = 0;
  std::string cause;                   // in one line; empty: it ended well
  std::optional<int64_t> failed_step;  // of the rank to blame, as far as it posted it
  bool lost_host = false;              // the failure is one of a host, not of the job
  std::chrono::milliseconds elapsed{0};
};

}  // namespace smp::supervision
