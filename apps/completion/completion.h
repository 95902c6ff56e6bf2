#pragma once

#include <stdexcept>
#include <string>

namespace CLI {
class App;
}

namespace smp {

class UnknownShell : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A script that completes `program` in a shell (bash, zsh, fish), written from the options and
// subcommands that it really has. Throws UnknownShell.
std::string completion_script(const CLI::App& app, const std::string& program,
                              const std::string& shell);

}  // namespace smp
