#include "progress_pages.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "smp/launcher/host.h"
#include "smp/plan/environment.h"

namespace smp {
namespace {

constexpr size_t kPageBytes = ProgressPage::kBytes;

}  // namespace

// Pages that nobody has touched cost nothing.
ProgressPages::ProgressPages() : memory_(memfd_create("smp-progress", MFD_CLOEXEC)) {
  if (!memory_.is_open() || ftruncate(memory_.number(), kMostPages * kPageBytes) != 0) return;
  void* pages = mmap(nullptr, kMostPages * kPageBytes, PROT_READ, MAP_SHARED, memory_.number(), 0);
  if (pages != MAP_FAILED) pages_ = static_cast<const std::byte*>(pages);
}

ProgressPages::~ProgressPages() {
  if (pages_ != nullptr) munmap(const_cast<std::byte*>(pages_), kMostPages * kPageBytes);
}

std::string ProgressPages::add(int process) {
  if (pages_ == nullptr) return "";
  const size_t page = page_of_.size();
  if (page == kMostPages)
    throw StartError(fmt::format("{} processes on one host: {} at most", page + 1, kMostPages));
  page_of_[process] = page;
  return fmt::format("{}=/proc/{}/fd/{}:{}", env::kProgressPage, getpid(), memory_.number(),
                     page * kPageBytes);
}

std::optional<RankProgress> ProgressPages::read(int process) const {
  const auto page = page_of_.find(process);
  if (page == page_of_.end()) return std::nullopt;
  return read_progress(*reinterpret_cast<const ProgressPage*>(pages_ + page->second * kPageBytes));
}

}  // namespace smp
