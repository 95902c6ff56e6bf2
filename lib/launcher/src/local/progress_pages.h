#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <unordered_map>

#include "smp/plan/runinfo/progress_page.h"
#include "smp/plan/system/file_descriptor.h"

namespace smp::local {

// The progress pages of a host's processes, in a memory file without a name. A process opens the
// file through this process (/proc/<pid>/fd), so that no file is left behind after a kill. If a
// limit forbids the memory (ulimit -f counts it as a file), processes have no page and report no
// progress. One thread.
class ProgressPages {
 public:
  ProgressPages();
  ~ProgressPages();
  ProgressPages(const ProgressPages&) = delete;
  ProgressPages& operator=(const ProgressPages&) = delete;

  // Clears a page for the process. Returns the environment variable with the page's place, or ""
  // if there is no memory.
  std::string add(int process);
  std::optional<runinfo::RankProgress> read(int process) const;

 private:
  static constexpr size_t kMostPages = 4096;

  system::FileDescriptor memory_;
  const std::byte* pages_ = nullptr;
  std::unordered_map<int, size_t> page_of_;
};

}  // namespace smp::local
