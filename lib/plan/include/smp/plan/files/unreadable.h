#pragma once

#include <string>

namespace smp::files {

// Throws for a file or folder that a job names and that cannot be read. `error`: the errno that
// said so. ConfigError where the job names what is not there, may not be read, or is something
// else; std::system_error where the machine or the network that should bring it has failed, so that
// the next try may go well. Both read "<what>: <reason>".
[[noreturn]] void throw_unreadable(const std::string& what, int error);

}  // namespace smp::files
