#pragma once

#include <string>
#include <string_view>

#include "smp/plan/files/file_kind.h"

namespace smp::files {

// Reads a file whole. `what` names its kind in messages, as in "plan file". Throws ConfigError if
// the file is missing, unreadable, a folder, or larger than 256 MiB (such as a device without an
// end); std::system_error if the machine or the network fails. The file is an input of this process
// from then on.
std::string read_text_file(const std::string& path, std::string_view what);

// Makes the file an input of this process, for readers that do not use read_text_file().
void remember_input(const std::string& path);

// Throws ConfigError if a text of this kind may not replace the file: the file is, under any name,
// an input of this process, or holds a text of another kind. An empty file, and a file that is not
// regular, may be replaced.
void refuse_output(const std::string& path, FileKind kind);

// Writes `text` to `path` whole or not at all. A file that is not regular (a device, a pipe) is
// written directly. Throws ConfigError with the reason, and as refuse_output() does with the kind
// of `text`, except for `edited`, the file that the text is an edited version of.
void write_text_file(const std::string& path, std::string_view text,
                     const std::string& edited = {});

}  // namespace smp::files
