#pragma once

#include <string>

#include "commands.h"

namespace smp {

// Text that was asked for (--help, --version), for standard output.
struct Information {
  std::string text;
};

// The command that argv names, ready to run. Throws UsageError, with the nearest option or command
// where a word is mistyped, and Information.
Run parse_command_line(int argc, const char* const* argv);

}  // namespace smp
