#pragma once

#include <string>
#include <string_view>

namespace smp::files {

// What a file is by its content, whatever its name: told apart are the texts that our programs
// write. kOther is each text that a user may have written: a job or cluster file, a script.
enum class FileKind { kPlan, kPage, kJson, kMetrics, kOther };

// "a plan", "a page (HTML)", ...
std::string_view name_of(FileKind kind);

// `text` is the whole file or its beginning.
FileKind kind_of_text(std::string_view text);

// A plan says what it is in its first lines. False of what is no regular file (a pipe): its bytes
// can be read only once.
bool is_plan_file(const std::string& path);

// The first 1024 bytes of a regular file; of what is none, nothing.
std::string head_of_file(const std::string& path);

}  // namespace smp::files
