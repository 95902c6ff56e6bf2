#include "device/gdr_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstring>
#include <stdexcept>

#include "smp/plan/base/check.h"

namespace smp::device {
namespace {

// It stays loaded, as all that has a driver behind it.
void* load(const std::string& name) {
  void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(dlerror());
  return library;
}

template <class Function>
void find(void* library, const std::string& of, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) throw std::runtime_error(fmt::format("{} has no function {}", of, name));
}

[[noreturn]] void refuse(const char* what, int error) {
  throw std::runtime_error(fmt::format("{} refuses: {}", what, std::strerror(error)));
}

}  // namespace

GdrLibrary::GdrLibrary(const std::string& name) {
  void* const library = load(name);
  find(library, name, "gdr_open", open_);
  find(library, name, "gdr_close", close_);
  find(library, name, "gdr_runtime_get_version", get_version_);
  find(library, name, "gdr_pin_buffer", pin_buffer);
  find(library, name, "gdr_unpin_buffer", unpin_buffer);
  find(library, name, "gdr_get_info_v2", get_info);
  find(library, name, "gdr_map", map);
  find(library, name, "gdr_unmap", unmap);
  find(library, name, "gdr_copy_to_mapping", copy_to_mapping);
  find(library, name, "gdr_copy_from_mapping", copy_from_mapping);
  driver_ = open_();
  if (driver_ == nullptr)
    throw std::runtime_error(
        "gdr_open failed: the kernel module gdrdrv is not loaded, or this process has no "
        "permission to open /dev/gdrdrv (GDRCOPY_ENABLE_LOGGING=1 prints details)");
}

GdrLibrary::~GdrLibrary() { close_(driver_); }

std::string GdrLibrary::version() const {
  int major = 0, minor = 0;
  get_version_(&major, &minor);
  return fmt::format("{}.{}", major, minor);
}

GdrAllocations::GdrAllocations(const std::string& name) {
  find(load(name), name, "cuPointerGetAttributes", get_attributes_);
}

// The numbers are those of CUpointer_attribute in cuda.h.
std::optional<GdrAllocations::Allocation> GdrAllocations::of(const void* data) const {
  constexpr int kMemoryType = 2, kBufferId = 7, kIsLegacyIpcCapable = 10, kRangeStart = 11,
                kRangeSize = 12;
  constexpr unsigned kDeviceMemory = 2;
  unsigned type = 0, is_plain = 0;
  unsigned long long number = 0, begin = 0;
  size_t bytes = 0;
  std::array<int, 5> asked{kMemoryType, kBufferId, kIsLegacyIpcCapable, kRangeStart, kRangeSize};
  std::array<void*, 5> answers{&type, &number, &is_plain, &begin, &bytes};
  const int error = get_attributes_(asked.size(), asked.data(), answers.data(),
                                    reinterpret_cast<uintptr_t>(data));
  if (error != 0 || type != kDeviceMemory) return std::nullopt;
  return Allocation{number, static_cast<uintptr_t>(begin), bytes, is_plain != 0};
}

GdrPages::GdrPages(const GdrLibrary& library, uintptr_t begin, uintptr_t end)
    : library_(library), begin_(begin), end_(end) {
  SMP_CHECK(begin % kPageBytes == 0 && end % kPageBytes == 0 && begin < end);
  const size_t bytes = end - begin;
  int error = library.pin_buffer(library.driver(), begin, bytes, 0, 0, &handle_);
  if (error != 0) refuse("gdr_pin_buffer", error);
  error = library.map(library.driver(), handle_, &view_, bytes);
  if (error != 0) {
    library.unpin_buffer(library.driver(), handle_);
    refuse("gdr_map", error);
  }
  GdrLibrary::Info info{};
  error = library.get_info(library.driver(), handle_, &info);
  view_begin_ = info.va;
  if (error == 0 && info.va <= begin && info.va + info.mapped_size >= end) return;
  library.unmap(library.driver(), handle_, view_, bytes);
  library.unpin_buffer(library.driver(), handle_);
  if (error != 0) refuse("gdr_get_info_v2", error);
  throw std::runtime_error(
      fmt::format("gdr_map mapped {} bytes from {:#x} instead of {} from {:#x}", info.mapped_size,
                  info.va, bytes, begin));
}

GdrPages::~GdrPages() {
  library_.unmap(library_.driver(), handle_, view_, end_ - begin_);
  library_.unpin_buffer(library_.driver(), handle_);
}

std::byte* GdrPages::at(const void* data, int64_t bytes) const {
  const auto address = reinterpret_cast<uintptr_t>(data);
  SMP_CHECK(address >= begin_ && address + static_cast<uint64_t>(bytes) <= end_);
  return static_cast<std::byte*>(view_) + (address - view_begin_);
}

void GdrPages::read(void* to, const void* from, int64_t bytes) const {
  const int error =
      library_.copy_from_mapping(handle_, to, at(from, bytes), static_cast<size_t>(bytes));
  if (error != 0) refuse("gdr_copy_from_mapping", error);
}

// A read does not pass the writes before it on their way to the card.
void GdrPages::write(void* to, const void* from, int64_t bytes) const {
  std::byte* const place = at(to, bytes);
  const int error = library_.copy_to_mapping(handle_, place, from, static_cast<size_t>(bytes));
  if (error != 0) refuse("gdr_copy_to_mapping", error);
  std::byte last{};
  read(&last, static_cast<const std::byte*>(to) + bytes - 1, 1);
}

}  // namespace smp::device
