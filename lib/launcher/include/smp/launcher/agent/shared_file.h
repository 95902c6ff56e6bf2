#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace smp::agent {

// A file or folder of this host that ranks on other hosts open under the same path: a host that
// does not share the file system lacks it, or has another one.
struct SharedFile {
  std::string path;
  uint64_t sum = 0;  // of the file's bytes; 0: whatever is there will do
};

// Throws ConfigError for one that cannot be read.
SharedFile shared_with_content(const std::string& path);

// What this host lacks of them, for the user; empty: nothing.
std::string why_not_shared(const std::vector<SharedFile>& files);

}  // namespace smp::agent
