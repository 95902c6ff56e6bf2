#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <unordered_map>

#include "smp/plan/runinfo/progress_page.h"
#include "smp/plan/system/file_descriptor.h"

namespace smp::local {

// The progress pages of a host's processes, in memory that has no name: a process opens it by way
// of this one (/proc/<pid>/fd), and nothing is left whoever is killed. Where a limit forbids the
// memory (ulimit -f counts it as a file), processes have no page, and so post nothing. One thread.
class ProgressPages {
 public:
  ProgressPages();
  ~ProgressPages();
  ProgressPages(const ProgressPages&) = delete;
  ProgressPages& operator=(const ProgressPages&) = delete;

  // A page for the process, empty, and the variable that tells it of that; "" without memory.
  std::string add(int process);
  std::optional<runinfo::RankProgress> read(int process) const;

 private:
  static constexpr size_t kMostPages = 4096;

  system::FileDescriptor memory_;
  const std::byte* pages_ = nullptr;
  std::unordered_map<int, size_t> page_of_;
};

}  // namespace smp::local
