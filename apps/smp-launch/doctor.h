#pragma once

#include <string>
#include <vector>

#include "check_hosts.h"

namespace smp {

// smp-launch doctor [--json]: what this host has and lacks for running jobs, with what to do about
// it. `words` stand behind "doctor". Throws UsageError, Information.
Report doctor(const std::vector<std::string>& words);

}  // namespace smp
