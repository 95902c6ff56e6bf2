#pragma once

#include <string>
#include <vector>

#include "smp/launcher/job/job.h"
#include "smp/launcher/request/prepared_job.h"

namespace smp::request {

// Takes the last `count` hosts out of the list. Throws ConfigError if none would be left.
std::vector<hosts::HostSpec> take_spares(std::vector<hosts::HostSpec>& hosts, int count);

// Whether a spare can take the place of a host with so many ranks.
bool has_room(const hosts::HostSpec& spare, int slots);

// Puts a spare in the place of each host that the job has lost, or that could not be reached. No
// other rank moves. Without a spare that has room the host stays, for it may come back. Returns
// what was done, in lines.
std::vector<std::string> replace_lost_hosts(PreparedJob& prepared, const job::LaunchJob& job,
                                            const job::JobResult& result);

}  // namespace smp::request
