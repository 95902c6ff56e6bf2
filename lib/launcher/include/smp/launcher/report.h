#pragma once

#include <string>

#include "smp/launcher/job.h"

namespace smp {

// "was killed by SIGSEGV (Segmentation fault)", "ended with exit code 3".
std::string text_of(const ProcessEnd& end);

// "SIGSEGV", "SIGRTMIN+3".
std::string signal_name(int number);

// "rank 3", or where ranks run on several hosts "rank 3 on host b".
std::string text_of_rank(const Job& job, int rank);

// What the launcher prints last: the cause first, then its evidence, then the consequences. Empty
// for a job that ended well and left nothing behind.
std::string report_text(const Job& job, const JobResult& result);

// The same for programs, one object; see docs/smp-launch.md.
std::string report_json(const Job& job, const JobResult& result);

}  // namespace smp
