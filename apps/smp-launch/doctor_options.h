#pragma once

#include <string>
#include <vector>

#include "smp/launcher/launch/check_hosts.h"

namespace smp {

// smp-launch doctor [--json]. `words` stand behind "doctor". Throws UsageError, Information.
launch::Report doctor(const std::vector<std::string>& words);

}  // namespace smp
