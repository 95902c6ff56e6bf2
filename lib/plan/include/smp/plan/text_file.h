#pragma once

#include <string>
#include <string_view>

namespace smp {

// Reads a file whole. `what` says what it should be, as in "plan file". Throws ConfigError if there
// is none, it may not be read, is a folder, or is larger than 256 MiB, as a device without an end;
// std::system_error if the machine or the network does not bring it.
std::string read_text_file(const std::string& path, std::string_view what);

}  // namespace smp
