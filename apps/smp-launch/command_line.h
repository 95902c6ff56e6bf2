#pragma once

#include <string>

#include "smp/launcher/request/launch_request.h"

namespace smp {

// Text that the user asked for instead of a launch: --help, --version.
struct Information {
  std::string text;
};

// Throws UsageError; throws Information for --help and --version.
request::LaunchRequest parse_command_line(int argc, const char* const* argv);

}  // namespace smp
