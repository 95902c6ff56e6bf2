#pragma once

#include <cstdint>

#include "smp/launcher/request/prepared_job.h"

namespace smp {

struct ResumePoint {
  int64_t step = 0;          // steps done in the checkpoint
  bool is_complete = false;  // that is all of them, and the weights that came of them are saved
};

// The checkpoint from which a job resumes. Throws ConfigError if its manifest is damaged, or if it
// is of another training or behind the plan's last step.
ResumePoint resume_point(const request::PreparedJob& job);

}  // namespace smp
