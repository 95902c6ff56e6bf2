#pragma once

#include <string>

#include "smp/plan/system/file_descriptor.h"

namespace smp::process {

// Opens a file that others may have put there, for the process that watches ranks: it must not
// wait, as open() does for the other end of a FIFO. Not open, with errno, if it cannot be; ENXIO
// if it is no plain file. What is written may also be a device, such as /dev/null. Any thread.
system::FileDescriptor open_plain_file(const std::string& path, int flags);

// At most so many bytes of it; none if it cannot be opened.
std::string read_plain_file(const std::string& path, size_t most_bytes);

// Writes it anew. False, with errno, if it cannot be written in full.
bool write_plain_file(const std::string& path, const std::string& text);

}  // namespace smp::process
