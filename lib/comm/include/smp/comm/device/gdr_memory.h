#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "smp/comm/device/device_memory.h"

namespace smp::device {

class GdrLibrary;
class GdrAllocations;
class GdrPages;

enum class GdrUse { kAuto, kOff, kOn };
// The value of SMP_GDRCOPY. Throws ConfigError: "SMP_GDRCOPY=x is not auto, off or on".
GdrUse read_gdr_use();

// The names of the libraries, for dlopen.
struct GdrLibraries {
  std::string gdrapi = "libgdrapi.so.2";
  std::string cuda = "libcuda.so.1";
};

// A GPU's memory, whose smallest copies the CPU makes through a mapping of the GPU's pages
// (GDRCopy). Such copies are shorter than the time that a stream needs to begin a copy.
//
//   to the host     read by the thread that asks whether the copy is done, once the GPU has reached
//                   the point where the copy was started
//   to the device   written at once if the GPU has passed `behind`. Otherwise the copy uses the
//                   stream, since the CPU would have to wait for the GPU.
//
// Copies to the device end in order, whether by CPU or by stream. A copy to the host ends after the
// stream's copies that were started before it.
//
// Mapping a page takes as long as ten copies or more. So a page is mapped at its second use while
// it is among the last 64 pages used, and stays mapped as long as it is among them. It must lie in
// a single allocation of cudaMalloc. CUDA gives each allocation of a process a number of its own,
// by which a page is found again. So freed memory is never read or written, even if its address is
// in use again. The driver keeps freed memory while it is mapped. So pages of allocations that are
// gone are unmapped whenever a new page is mapped.
//
// kAuto uses GDRCopy where it can; kOn throws ConfigError, saying why, where it cannot.
//
// Thread rule of the memory behind it, which must outlive it; its copies need not.
class GdrMemory final : public DeviceMemory {
 public:
  // Longer copies are as fast by a stream.
  static constexpr int64_t kMaxBytes = 2048;

  GdrMemory(DeviceMemory& memory, GdrUse use, const GdrLibraries& libraries = {});
  ~GdrMemory() override;

  // "GDRCopy 2.5 for copies of up to 2048 bytes", or "no GDRCopy: " and why.
  const std::string& text() const { return text_; }
  // Copies that the CPU has made.
  int64_t reads() const { return reads_; }
  int64_t writes() const { return writes_; }

  bool holds(const void* data) const override { return memory_.holds(data); }
  void pin(void* memory, int64_t bytes) override { memory_.pin(memory, bytes); }
  void unpin(void* memory) override { memory_.unpin(memory); }
  CopyPtr until_now() override { return memory_.until_now(); }
  CopyPtr start_to_host(void* to, const void* from, int64_t bytes, Copy& behind) override;
  CopyPtr start_to_device(void* to, const void* from, int64_t bytes, Copy& behind) override;

 private:
  class Read;
  // One or two pages that a copy has used.
  struct Used {
    uint64_t allocation;
    const void* inside;  // an address in the allocation
    uintptr_t begin, end;
    std::shared_ptr<GdrPages> pages;  // null: not mapped
    std::string refusal;              // why they cannot be mapped, if that was tried
  };

  bool is_small(int64_t bytes) const { return library_ && bytes > 0 && bytes <= kMaxBytes; }
  // Null if they are not mapped.
  std::shared_ptr<GdrPages> pages_of(const void* data, int64_t bytes);
  void map(Used& used, uintptr_t allocation_begin, uintptr_t allocation_end, bool is_plain);
  void forget_freed();
  CopyPtr by_stream(CopyPtr copy, std::shared_ptr<Copy>& last);

  DeviceMemory& memory_;
  const GdrUse use_;
  std::unique_ptr<GdrLibrary> library_;  // null: GDRCopy is not used
  std::unique_ptr<GdrAllocations> allocations_;
  std::string text_;
  std::list<Used> used_;                          // the latest first
  std::shared_ptr<Copy> last_read_, last_write_;  // the last copies by a stream
  int64_t reads_ = 0, writes_ = 0;
};

}  // namespace smp::device
