#pragma once

#include <string>
#include <string_view>
#include <vector>

// Words as a POSIX shell reads and writes them. Pure functions; any thread.
namespace smp::hosts {

// One word, in quotes where it needs them.
std::string quoted_for_shell(std::string_view word);

// Words with blanks between, each as above.
std::string command_text(const std::vector<std::string>& words);

// The words of a command line: parted by blanks, but not inside '...' or "..."; nothing is
// expanded. Throws ConfigError if a quote is not closed.
std::vector<std::string> words_of_command(const std::string& option, const std::string& text);

}  // namespace smp::hosts
