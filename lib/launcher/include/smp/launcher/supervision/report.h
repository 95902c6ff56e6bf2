#pragma once

#include <string>
#include <vector>

#include "smp/launcher/job/job.h"
#include "smp/launcher/process/process_end.h"
#include "smp/launcher/supervision/start.h"

namespace smp::supervision {

// "lost with its host: ..."
std::string text_of_loss(const job::RankState& state);

// "rank 3", or where ranks run on several hosts "rank 3 on host b".
std::string text_of_rank(const job::LaunchJob& job, int rank);

// The result's cause, with the rank that it names.
std::string cause_line(const job::LaunchJob& job, const job::JobResult& result);

// Why a job ended, in one line; empty for one that ended well.
std::string one_line_cause(const job::LaunchJob& job, const job::JobResult& result);

// What the launcher prints last: the cause first, then its evidence, then the consequences. Empty
// for a job that ended well and left nothing behind.
std::string report_text(const job::LaunchJob& job, const job::JobResult& result);

// The same for programs, one object; see docs/launch/job-report.md.
// `starts`: those of all, the last one included; fewer than two are not told.
std::string report_json(const job::LaunchJob& job, const job::JobResult& result,
                        const std::vector<Start>& starts = {});

}  // namespace smp::supervision
