#pragma once

#include <string>
#include <string_view>

namespace smp::files {

// "this is a Git LFS pointer ..." if `head`, the first bytes of a file, are such a pointer: what a
// clone holds in place of a large file until `git lfs pull`. Else "". Pure.
std::string git_lfs_complaint(std::string_view head);

// The same of a file; "" where it cannot be read.
std::string git_lfs_complaint_of(const std::string& path);

}  // namespace smp::files
