#include "comm/fake_gdrapi.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

// libgdrapi 2.5 and cuPointerGetAttributes over the host's memory, strict about how they are used.
namespace {

constexpr uintptr_t kPage = 64 << 10;

struct Allocation {
  uintptr_t begin = 0, end = 0;
  unsigned long long number = 0;
  bool is_plain = true;
};

struct Pin {
  uintptr_t begin = 0, end = 0;
  char* view = nullptr;  // null: not mapped
};

std::mutex mutex;
std::vector<Allocation> allocations;  // by their order
std::map<unsigned long, Pin> pins;
std::vector<std::string> faults;
unsigned long long last_number = 0;
unsigned long last_handle = 0;
int opened = 0, pin_error = 0, map_error = 0, info_error = 0, copy_error = 0;
int64_t pins_made = 0;
bool open_fails = false, is_elsewhere = false;

void expect(bool is_well, const char* fault) {
  if (!is_well) faults.emplace_back(fault);
}

const Allocation* allocation_at(uintptr_t address) {
  for (const Allocation& one : allocations)
    if (one.begin <= address && address < one.end) return &one;
  return nullptr;
}

// [begin, end) of a mapping that a copy may touch.
void expect_in_view(unsigned long handle, const void* place, size_t bytes) {
  const auto pin = pins.find(handle);
  expect(pin != pins.end() && pin->second.view != nullptr, "a copy of what is not mapped");
  if (pin == pins.end()) return;
  const char* const view = pin->second.view;
  const size_t size = pin->second.end - pin->second.begin;
  const char* const from = static_cast<const char*>(place);
  expect(from >= view && from + bytes <= view + size, "a copy beyond what is mapped");
}

}  // namespace

namespace smp::fake_gpu {

std::byte* allocate(int64_t bytes, bool is_plain, std::byte* at, int64_t apart) {
  const std::scoped_lock lock(mutex);
  const size_t size = (static_cast<size_t>(bytes + apart) + 2 * kPage) / kPage * kPage;
  uintptr_t begin = 0;
  if (at == nullptr) {
    void* const room = ::mmap(nullptr, size + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED) return nullptr;
    begin = (reinterpret_cast<uintptr_t>(room) + kPage - 1) / kPage * kPage;
  } else {
    begin = reinterpret_cast<uintptr_t>(at) - static_cast<uintptr_t>(apart);
  }
  void* const memory = ::mmap(reinterpret_cast<void*>(begin), size, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  begin += static_cast<uintptr_t>(apart);
  allocations.push_back({begin, begin + static_cast<uintptr_t>(bytes), ++last_number, is_plain});
  return reinterpret_cast<std::byte*>(begin);
}

void free(std::byte* memory) {
  const std::scoped_lock lock(mutex);
  std::erase_if(allocations, [&](const Allocation& one) {
    return one.begin == reinterpret_cast<uintptr_t>(memory);
  });
}

void let_open_fail(bool fails) { open_fails = fails; }
void let_pin_fail(int error) { pin_error = error; }
void let_map_fail(int error) { map_error = error; }
void let_info_fail(int error) { info_error = error; }
void let_info_be_elsewhere(bool is) { is_elsewhere = is; }
void let_copies_fail(int error) { copy_error = error; }

Now now() {
  const std::scoped_lock lock(mutex);
  int mapped = 0;
  for (const auto& [handle, pin] : pins) mapped += pin.view != nullptr ? 1 : 0;
  return {opened, static_cast<int>(pins.size()), mapped, pins_made};
}

std::vector<std::string> take_faults() {
  const std::scoped_lock lock(mutex);
  return std::exchange(faults, {});
}

}  // namespace smp::fake_gpu

// As gdrapi.h declares them.
extern "C" {

struct gdr {
  int unused;
};
struct gdr_mh_s {
  unsigned long h;
};
struct gdr_info_v2 {
  uint64_t va;
  uint64_t mapped_size;
  uint32_t page_size;
  uint64_t tm_cycles;
  uint32_t cycles_per_ms;
  unsigned mapped : 1;
  unsigned wc_mapping : 1;
  int mapping_type;
};

gdr* gdr_open() {
  static gdr driver;
  const std::scoped_lock lock(mutex);
  if (open_fails) return nullptr;
  ++opened;
  return &driver;
}

int gdr_close(gdr* /*driver*/) {
  const std::scoped_lock lock(mutex);
  expect(opened > 0, "closed, and not open");
  --opened;
  expect(opened > 0 || pins.empty(), "closed with memory pinned");
  return 0;
}

void gdr_runtime_get_version(int* major, int* minor) {
  *major = 2;
  *minor = 5;
}

int gdr_pin_buffer(gdr* /*driver*/, unsigned long address, size_t size, uint64_t token,
                   uint32_t space, gdr_mh_s* handle) {
  const std::scoped_lock lock(mutex);
  if (pin_error != 0) return pin_error;
  expect(opened > 0, "pinned, and not open");
  expect(address % kPage == 0 && size % kPage == 0 && size > 0, "pinned what is no whole pages");
  expect(token == 0 && space == 0, "pinned with a token");
  const Allocation* const allocation = allocation_at(address);
  expect(allocation != nullptr && address + size <= allocation->end, "pinned beyond an allocation");
  expect(allocation != nullptr && allocation->is_plain, "pinned what is not of cudaMalloc");
  pins[++last_handle] = {address, address + size, nullptr};
  ++pins_made;
  handle->h = last_handle;
  return 0;
}

int gdr_unpin_buffer(gdr* /*driver*/, gdr_mh_s handle) {
  const std::scoped_lock lock(mutex);
  const auto pin = pins.find(handle.h);
  expect(pin != pins.end(), "unpinned what is not pinned");
  if (pin == pins.end()) return EINVAL;
  expect(pin->second.view == nullptr, "unpinned before it was unmapped");
  pins.erase(pin);
  return 0;
}

int gdr_get_info_v2(gdr* /*driver*/, gdr_mh_s handle, gdr_info_v2* info) {
  const std::scoped_lock lock(mutex);
  if (info_error != 0) return info_error;
  const Pin& pin = pins.at(handle.h);
  *info = {};
  info->va = pin.begin + (is_elsewhere ? kPage : 0);
  info->mapped_size = pin.end - pin.begin;
  info->page_size = kPage;
  info->mapped = pin.view != nullptr;
  return 0;
}

// The same memory once more.
int gdr_map(gdr* /*driver*/, gdr_mh_s handle, void** view, size_t size) {
  const std::scoped_lock lock(mutex);
  if (map_error != 0) return map_error;
  const auto pin = pins.find(handle.h);
  expect(pin != pins.end(), "mapped what is not pinned");
  if (pin == pins.end()) return EINVAL;
  expect(pin->second.view == nullptr, "mapped twice");
  expect(size == pin->second.end - pin->second.begin, "mapped another length than was pinned");
  void* const again = ::mremap(reinterpret_cast<void*>(pin->second.begin), 0, size, MREMAP_MAYMOVE);
  if (again == MAP_FAILED) return errno;
  pin->second.view = static_cast<char*>(again);
  *view = again;
  return 0;
}

int gdr_unmap(gdr* /*driver*/, gdr_mh_s handle, void* view, size_t size) {
  const std::scoped_lock lock(mutex);
  const auto pin = pins.find(handle.h);
  expect(pin != pins.end() && pin->second.view == view && view != nullptr &&
             size == pin->second.end - pin->second.begin,
         "unmapped what is not mapped");
  if (pin == pins.end()) return EINVAL;
  ::munmap(view, size);
  pin->second.view = nullptr;
  return 0;
}

int gdr_copy_to_mapping(gdr_mh_s handle, void* to, const void* from, size_t size) {
  const std::scoped_lock lock(mutex);
  if (copy_error != 0) return copy_error;
  expect_in_view(handle.h, to, size);
  std::memcpy(to, from, size);
  return 0;
}

int gdr_copy_from_mapping(gdr_mh_s handle, void* to, const void* from, size_t size) {
  const std::scoped_lock lock(mutex);
  if (copy_error != 0) return copy_error;
  expect_in_view(handle.h, from, size);
  std::memcpy(to, from, size);
  return 0;
}

// Of CUpointer_attribute those that are asked for; what is not the GPU's is answered with zeros.
int cuPointerGetAttributes(unsigned count, int* attributes, void** data, unsigned long long at) {
  const std::scoped_lock lock(mutex);
  const Allocation* const found = allocation_at(static_cast<uintptr_t>(at));
  const Allocation one = found != nullptr ? *found : Allocation{0, 0, 0, false};
  for (unsigned i = 0; i < count; ++i) {
    switch (attributes[i]) {
      case 2: *static_cast<unsigned*>(data[i]) = found != nullptr ? 2 : 0; break;
      case 7: *static_cast<unsigned long long*>(data[i]) = one.number; break;
      case 10: *static_cast<unsigned*>(data[i]) = one.is_plain ? 1 : 0; break;
      case 11: *static_cast<unsigned long long*>(data[i]) = one.begin; break;
      case 12: *static_cast<size_t*>(data[i]) = one.end - one.begin; break;
      default: expect(false, "asked for an attribute that is not known here"); return 1;
    }
  }
  return 0;
}
}
