#include "local/progress_pages.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "smp/launcher/job/host.h"
#include "smp/plan/env/environment.h"

namespace smp::local {
namespace {

constexpr size_t kPageBytes = runinfo::ProgressPage::kBytes;

}  // namespace

// Untouched pages use no memory.
ProgressPages::ProgressPages() : memory_(memfd_create("smp-progress", MFD_CLOEXEC)) {
  if (!memory_ || ftruncate(memory_.number(), kMostPages * kPageBytes) != 0) return;
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
    throw job::StartError(
        fmt::format("{} processes on one host: at most {} are possible", page + 1, kMostPages));
  page_of_[process] = page;
  return fmt::format("{}=/proc/{}/fd/{}:{}", env::kProgressPage, getpid(), memory_.number(),
                     page * kPageBytes);
}

std::optional<runinfo::RankProgress> ProgressPages::read(int process) const {
  const auto page = page_of_.find(process);
  if (page == page_of_.end()) return std::nullopt;
  return runinfo::read_progress(
      *reinterpret_cast<const runinfo::ProgressPage*>(pages_ + page->second * kPageBytes));
}

}  // namespace smp::local
