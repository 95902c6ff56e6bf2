#pragma once

#include "smp/launcher/launch/check_hosts.h"

namespace smp::launch {

// What this host has and lacks for running jobs, with what to do about it, as text or as one JSON
// object.
Report doctor(bool json);

}  // namespace smp::launch
