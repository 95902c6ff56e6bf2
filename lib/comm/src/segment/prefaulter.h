#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "segment/mapping.h"
#include "segment/shared_job.h"

namespace smp::segment {

// Maps memory of other ranks that this one is about to write, many pages at once where it is new. A
// page fault at the first write takes as long as to copy several pages. Memory that was freed and
// allocated again is mapped page by page. Of one thread.
class Prefaulter {
 public:
  struct Range {
    int64_t begin, end;  // offsets in the job's memory
  };

  static constexpr int64_t kAtOnce = 512 << 10;

  // Maps `written` and what lies near it in `allocated`; false if all of it was mapped before.
  bool map(const SharedJob& job, Range written, Range allocated) {
    bool is_new = false;
    const auto page = int64_t(kPageBytes);
    for (int64_t at = written.begin / kAtOnce * kAtOnce; at < written.end; at += kAtOnce) {
      const auto place = size_t(at / kAtOnce);
      if (place >= known_.size()) known_.resize(place + 1);
      if (known_[place]) continue;
      known_[place] = is_new = true;
      const int64_t begin = std::max(at, allocated.begin / page * page);
      map_pages(job.at(begin), size_t(std::min(at + kAtOnce, allocated.end) - begin));
    }
    return is_new;
  }

 private:
  std::vector<bool> known_;
};

}  // namespace smp::segment
