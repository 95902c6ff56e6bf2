#pragma once

#include <string>
#include <string_view>

namespace smp {

// Reads a file whole. `what` says what it should be, as in "plan file". Throws ConfigError if there
// is none, it may not be read, is a folder, or is larger than 256 MiB, as a device without an end;
// std::system_error if the machine or the network does not bring it.
// It is an input of this process from then on.
std::string read_text_file(const std::string& path, std::string_view what);

// For those that read a file in another way.
void remember_input(const std::string& path);

// Throws ConfigError if the file, by whatever name, is an input of this process.
void refuse_input(const std::string& path);

// Writes `text` to `path` whole or not at all; what is no regular file (a device, a pipe) is
// written to as it is. Throws ConfigError with the reason, and of a file that is an input of this
// process, but for `edited`: the file that the text is an edition of.
void write_text_file(const std::string& path, std::string_view text,
                     const std::string& edited = {});

}  // namespace smp
