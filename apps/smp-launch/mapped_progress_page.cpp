#include "mapped_progress_page.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <charconv>

#include "smp/plan/base/errors.h"
#include "smp/plan/env/environment.h"

namespace smp {

MappedProgressPage::MappedProgressPage(const std::string& place) {
  if (place.empty()) return;
  const auto refuse = [&](const char* why) {
    throw ConfigError(fmt::format("{}='{}': {}", env::kProgressPage, place, why));
  };
  const size_t colon = place.rfind(':');
  int64_t offset = 0;
  const char* end = place.data() + place.size();
  if (colon == place.npos || std::from_chars(place.data() + colon + 1, end, offset).ptr != end ||
      offset < 0 || offset % runinfo::ProgressPage::kBytes != 0)
    refuse("expected FILE:OFFSET of a progress page");
  const int file = open(place.substr(0, colon).c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) refuse(strerror(errno));
  void* page = mmap(nullptr, runinfo::ProgressPage::kBytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                    file, offset);
  const int error = errno;
  close(file);
  if (page == MAP_FAILED) refuse(strerror(error));
  page_ = static_cast<runinfo::ProgressPage*>(page);
}

MappedProgressPage::~MappedProgressPage() {
  if (page_ != nullptr) munmap(page_, runinfo::ProgressPage::kBytes);
}

}  // namespace smp
