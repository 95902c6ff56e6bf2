#pragma once

#include <string>

#include "smp/plan/runinfo/progress_page.h"

namespace smp {

// The page that smp-launch shares with this rank, as SMP_PROGRESS_PAGE names it; "" = none.
class MappedProgressPage {
 public:
  // Throws ConfigError for a place that cannot be mapped.
  explicit MappedProgressPage(const std::string& place);
  ~MappedProgressPage();
  MappedProgressPage(const MappedProgressPage&) = delete;
  MappedProgressPage& operator=(const MappedProgressPage&) = delete;

  bool is_mapped() const { return page_ != nullptr; }
  runinfo::ProgressPage& page() const { return *page_; }

 private:
  runinfo::ProgressPage* page_ = nullptr;
};

}  // namespace smp
