#pragma once

#include <string>
#include <string_view>

namespace smp::files {

// The kind of a file by its content, whatever its name. The kinds are the texts that our programs
// write. kOther is any text that a user may have written: a job or cluster file, a script.
enum class FileKind { kPlan, kPage, kJson, kMetrics, kOther };

// "a plan", "a page (HTML)", ...
std::string_view name_of(FileKind kind);

// `text` is the whole file or its beginning.
FileKind kind_of_text(std::string_view text);

// A plan states its kind in its first lines. False for a file that is not regular (a pipe): its
// bytes can be read only once.
bool is_plan_file(const std::string& path);

// The first 1024 bytes of a regular file; "" for another kind of file.
std::string head_of_file(const std::string& path);

}  // namespace smp::files
