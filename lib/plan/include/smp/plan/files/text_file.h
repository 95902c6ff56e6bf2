#pragma once

#include <string>
#include <string_view>

#include "smp/plan/files/file_kind.h"

namespace smp::files {

// Reads a file whole. `what` says what it should be, as in "plan file". Throws ConfigError if there
// is none, it may not be read, is a folder, or is larger than 256 MiB, as a device without an end;
// std::system_error if the machine or the network does not bring it.
// It is an input of this process from then on.
std::string read_text_file(const std::string& path, std::string_view what);

// For those that read a file in another way.
void remember_input(const std::string& path);

// Throws ConfigError if the file may not be replaced by a text of the kind: it is, by whatever
// name, an input of this process, or holds a text of another kind. An empty file, and what is no
// regular file, may be.
void refuse_output(const std::string& path, FileKind kind);

// Writes `text` to `path` whole or not at all; what is no regular file (a device, a pipe) is
// written to as it is. Throws ConfigError with the reason, and as refuse_output does with the kind
// of `text`, but for `edited`: the file that the text is an edition of.
void write_text_file(const std::string& path, std::string_view text,
                     const std::string& edited = {});

}  // namespace smp::files
