#pragma once

#include <cstdint>

#include "smp/launcher/request/prepared_job.h"

namespace smp {

struct ResumePoint {
  int64_t step = 0;          // steps done in the checkpoint
  bool is_complete = false;  // that is all of them, and the weights that came of them are saved
};

// Where a resumed job goes on. Throws ConfigError for a checkpoint that is damaged as far as its
// manifest tells, of another training, or behind the plan's last step.
ResumePoint resume_point(const request::PreparedJob& job);

}  // namespace smp
