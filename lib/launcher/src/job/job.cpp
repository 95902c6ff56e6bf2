#include "smp/launcher/job/job.h"

#include <algorithm>

#include "smp/plan/base/check.h"
#include "smp/plan/base/exit_code.h"

namespace smp::job {

std::vector<int> local_ranks_of(const LaunchJob& job) {
  std::vector<int> started(std::max<size_t>(job.hosts.size(), 1), 0);  // ranks of each host
  std::vector<int> local_ranks;
  for (size_t rank = 0; rank < job.commands.size(); ++rank)
    local_ranks.push_back(
        started[job.hosts.empty() ? 0 : static_cast<size_t>(job.host_of_rank[rank])]++);
  return local_ranks;
}

bool logs_hold_output(const LaunchJob& job) {
  if (!job.output.host_logs.empty()) return true;
  return std::all_of(job.output.shown_ranks.begin(), job.output.shown_ranks.end(), [&](int rank) {
    const auto place = static_cast<size_t>(rank);
    return place < job.files.size() && !job.files[place].out_log.empty();
  });
}

int exit_code_of(const JobResult& result) {
  switch (result.end) {
    case JobEnd::kSuccess: return static_cast<int>(ExitCode::kOk);
    case JobEnd::kRankFailed: {
      const RankState& witness = result.ranks[result.cause->witness];
      return witness.lost.empty() ? witness.end.code() : static_cast<int>(ExitCode::kLauncherError);
    }
    case JobEnd::kHang:
    case JobEnd::kTimeout: return static_cast<int>(ExitCode::kTimeout);
    case JobEnd::kHostsUnreachable:
    case JobEnd::kLauncherError: return static_cast<int>(ExitCode::kLauncherError);
    case JobEnd::kCheckpointed: return static_cast<int>(ExitCode::kCheckpointedOnRequest);
    case JobEnd::kInterrupted: return 128 + result.interrupted_by;
  }
  check_failed(__FILE__, __LINE__, "unknown end");
}

}  // namespace smp::job
