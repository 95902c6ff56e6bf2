#include "smp/comm/device/gdr_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "device/gdr_library.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/env/environment.h"
#include "smp/plan/env/environment_reader.h"

namespace smp::device {
namespace {

constexpr size_t kMostUsed = 64;

// Two own a copy by a stream: who waits for it, and the next copy of the CPU, which comes behind.
class SharedCopy final : public Copy {
 public:
  explicit SharedCopy(std::shared_ptr<Copy> copy) : copy_(std::move(copy)) {}
  bool done() override { return copy_->done(); }
  void wait() override { copy_->wait(); }
  void follow() override { copy_->follow(); }

 private:
  const std::shared_ptr<Copy> copy_;
};

// What is asked of the GPU after it has been written comes behind it anyway.
class WrittenCopy final : public Copy {
 public:
  bool done() override { return true; }
  void wait() override {}
  void follow() override {}
};

}  // namespace

GdrUse read_gdr_use() {
  const std::string text = env::optional(env::kGdrCopy);
  if (text.empty() || text == "auto") return GdrUse::kAuto;
  if (text == "off") return GdrUse::kOff;
  if (text == "on") return GdrUse::kOn;
  throw ConfigError(fmt::format("{}={}: expected auto, off or on", env::kGdrCopy, text));
}

// Read by whoever finds that the GPU has come to it.
class GdrMemory::Read final : public Copy {
 public:
  Read(GdrMemory& memory, std::shared_ptr<GdrPages> pages, void* to, const void* from,
       int64_t bytes)
      : memory_(memory),
        pages_(std::move(pages)),
        reached_(memory.memory_.until_now()),
        before_(memory.last_read_),
        to_(to),
        from_(from),
        bytes_(bytes) {}

  bool done() override {
    if (pages_ == nullptr) return true;
    if (!reached_->done() || (before_ != nullptr && !before_->done())) return false;
    read();
    return true;
  }
  void wait() override {
    if (pages_ == nullptr) return;
    reached_->wait();
    if (before_ != nullptr) before_->wait();
    read();
  }
  void follow() override { wait(); }

 private:
  void read() {
    pages_->read(to_, from_, bytes_);
    pages_.reset();
    before_.reset();
    ++memory_.reads_;
  }

  GdrMemory& memory_;
  std::shared_ptr<GdrPages> pages_;  // null: it has been read
  const CopyPtr reached_;
  std::shared_ptr<Copy> before_;
  void* const to_;
  const void* const from_;
  const int64_t bytes_;
};

GdrMemory::GdrMemory(DeviceMemory& memory, GdrUse use, const GdrLibraries& libraries)
    : memory_(memory), use_(use) {
  if (use == GdrUse::kOff) {
    text_ = fmt::format("no GDRCopy: {}=off", env::kGdrCopy);
    return;
  }
  try {
    auto library = std::make_unique<GdrLibrary>(libraries.gdrapi);
    allocations_ = std::make_unique<GdrAllocations>(libraries.cuda);
    text_ = fmt::format("GDRCopy {} for copies of up to {} bytes", library->version(), kMaxBytes);
    library_ = std::move(library);
  } catch (const std::runtime_error& error) {
    if (use == GdrUse::kOn)
      throw ConfigError(
          fmt::format("{}=on, but GDRCopy is not available: {} (auto runs without GDRCopy)",
                      env::kGdrCopy, error.what()));
    text_ = fmt::format("no GDRCopy: {}", error.what());
  }
}

GdrMemory::~GdrMemory() = default;

CopyPtr GdrMemory::start_to_host(void* to, const void* from, int64_t bytes, Copy& behind) {
  if (is_small(bytes))
    if (auto pages = pages_of(from, bytes))
      return std::make_unique<Read>(*this, std::move(pages), to, from, bytes);
  return by_stream(memory_.start_to_host(to, from, bytes, behind), last_read_);
}

CopyPtr GdrMemory::start_to_device(void* to, const void* from, int64_t bytes, Copy& behind) {
  const bool is_reached =
      is_small(bytes) && (last_write_ == nullptr || last_write_->done()) && behind.done();
  if (is_reached) {
    if (const auto pages = pages_of(to, bytes)) {
      pages->write(to, from, bytes);
      ++writes_;
      return std::make_unique<WrittenCopy>();
    }
  }
  return by_stream(memory_.start_to_device(to, from, bytes, behind), last_write_);
}

CopyPtr GdrMemory::by_stream(CopyPtr copy, std::shared_ptr<Copy>& last) {
  if (library_ == nullptr) return copy;
  last = std::move(copy);
  return std::make_unique<SharedCopy>(last);
}

std::shared_ptr<GdrPages> GdrMemory::pages_of(const void* data, int64_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const uintptr_t end = begin + static_cast<uint64_t>(bytes);
  const auto allocation = allocations_->of(data).value_or(GdrAllocations::Allocation{});
  const auto known = std::find_if(used_.begin(), used_.end(), [&](const Used& one) {
    return one.allocation == allocation.number && one.begin <= begin && end <= one.end;
  });
  if (known == used_.end()) {
    const uintptr_t page = GdrPages::kPageBytes;
    if (used_.size() == kMostUsed) used_.pop_back();
    used_.push_front({allocation.number, data, begin / page * page, (end + page - 1) / page * page,
                      nullptr, ""});
    return nullptr;
  }
  used_.splice(used_.begin(), used_, known);
  Used& used = used_.front();
  if (used.pages == nullptr && used.refusal.empty())
    map(used, allocation.begin, allocation.begin + allocation.bytes, allocation.is_plain);
  if (used.pages == nullptr && use_ == GdrUse::kOn)
    throw ConfigError(fmt::format("{}=on, but memory of the GPU cannot be mapped: {}",
                                  env::kGdrCopy, used.refusal));
  return used.pages;
}

void GdrMemory::map(Used& used, uintptr_t allocation_begin, uintptr_t allocation_end,
                    bool is_plain) {
  forget_freed();
  if (!is_plain) {
    used.refusal =
        "the memory is not from cudaMalloc (but from cudaMallocAsync, or from expandable segments)";
  } else if (used.begin < allocation_begin || used.end > allocation_end) {
    used.refusal = "the page of 64 KiB around the memory is not in one allocation";
  } else {
    try {
      used.pages = std::make_shared<GdrPages>(*library_, used.begin, used.end);
    } catch (const std::runtime_error& error) {
      used.refusal = error.what();
    }
  }
}

void GdrMemory::forget_freed() {
  used_.remove_if([&](const Used& one) {
    const auto now = allocations_->of(one.inside);
    return now.value_or(GdrAllocations::Allocation{}).number != one.allocation;
  });
}

}  // namespace smp::device
