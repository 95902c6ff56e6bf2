#pragma once

#include <string>

namespace smp::files {

// Throws for a file or folder that a job names and that cannot be read; `error` is the errno.
// ConfigError if it does not exist, may not be read, or is something else. std::system_error if the
// machine or the network has failed, so that the next try may succeed. Both read "<what>:
// <reason>".
[[noreturn]] void throw_unreadable(const std::string& what, int error);

}  // namespace smp::files
