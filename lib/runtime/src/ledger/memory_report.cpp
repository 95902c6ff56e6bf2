#include "smp/runtime/ledger/memory_report.h"

#include <fmt/format.h>

namespace smp::ledger {
namespace {

std::string limit_text(const MemoryLedger& ledger) {
  return ledger.limit_bytes() > 0 ? fmt::format(" of {}", ledger.limit_bytes()) : "";
}

void add_pool(std::string& text, std::string_view name, const MemoryLedger& ledger) {
  const MemoryUse live = ledger.live();
  const MemoryUse peak = ledger.peak();
  text += fmt::format("{}{}: bytes in use now, at the peak ({})\n", name, limit_text(ledger),
                      to_string(peak.phase));
  const auto row = [&](std::string_view what, int64_t now, int64_t most) {
    text += fmt::format("  {:<14}{:>18}{:>18}\n", what, now, most);
  };
  for (size_t i = 0; i < kMemoryCategories; ++i) {
    if (live.by_category[i] == 0 && peak.by_category[i] == 0) continue;
    row(name_of(static_cast<MemoryCategory>(i)), live.by_category[i], peak.by_category[i]);
  }
  row("all", live.bytes, peak.bytes);
  const std::vector<MemoryItem> largest = ledger.largest();
  if (!largest.empty()) text += "  largest items in use now\n";
  for (const MemoryItem& item : largest) {
    text += fmt::format("  {:>16}  {:<14}{}\n", item.bytes, name_of(item.category), item.what);
  }
}

}  // namespace

std::string memory_report(const MemoryLedger& device, const MemoryLedger& host) {
  std::string text =
      fmt::format("memory of rank {} in {}\n", device.rank(), to_string(device.phase()));
  add_pool(text, "device memory", device);
  if (host.peak().bytes > 0) add_pool(text, "host memory", host);
  return text;
}

std::string MemoryWatch::report() const {
  const std::lock_guard lock(mutex_);
  return device_ == nullptr ? "" : memory_report(*device_, *host_);
}

MemoryWatch::Show::Show(MemoryWatch* watch, const MemoryLedger& device, const MemoryLedger& host)
    : watch_(watch) {
  if (watch_ == nullptr) return;
  const std::lock_guard lock(watch_->mutex_);
  watch_->device_ = &device;
  watch_->host_ = &host;
}

MemoryWatch::Show::~Show() {
  if (watch_ == nullptr) return;
  const std::lock_guard lock(watch_->mutex_);
  watch_->device_ = watch_->host_ = nullptr;
}

}  // namespace smp::ledger
