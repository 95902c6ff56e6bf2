#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace smp::device {

// The part of GDRCopy in use, with its driver open. libgdrapi is loaded at run time; the
// declarations here are those of its header (gdrapi.h, version 2).
class GdrLibrary {
 public:
  struct Handle {
    unsigned long value;
  };
  struct Info {
    uint64_t va, mapped_size;
    uint32_t page_size;
    uint64_t tm_cycles;
    uint32_t cycles_per_ms;
    unsigned mapped : 1, wc_mapping : 1;
    int mapping_type;
  };

  // Throws std::runtime_error that says what is missing.
  explicit GdrLibrary(const std::string& name);
  ~GdrLibrary();
  GdrLibrary(const GdrLibrary&) = delete;
  GdrLibrary& operator=(const GdrLibrary&) = delete;

  std::string version() const;

  // Each gives 0, or an errno.
  int (*pin_buffer)(void*, unsigned long, size_t, uint64_t, uint32_t, Handle*) = nullptr;
  int (*unpin_buffer)(void*, Handle) = nullptr;
  int (*get_info)(void*, Handle, Info*) = nullptr;
  int (*map)(void*, Handle, void**, size_t) = nullptr;
  int (*unmap)(void*, Handle, void*, size_t) = nullptr;
  int (*copy_to_mapping)(Handle, void*, const void*, size_t) = nullptr;
  int (*copy_from_mapping)(Handle, void*, const void*, size_t) = nullptr;

  void* driver() const { return driver_; }

 private:
  void* (*open_)() = nullptr;
  int (*close_)(void*) = nullptr;
  void (*get_version_)(int*, int*) = nullptr;
  void* driver_ = nullptr;
};

// Which allocation an address of a GPU is in, by libcuda.
class GdrAllocations {
 public:
  struct Allocation {
    uint64_t number = 0;  // no other of this process has it, before or after
    uintptr_t begin = 0;
    uint64_t bytes = 0;
    bool is_plain = false;  // of cudaMalloc
  };

  // Throws std::runtime_error that says what is missing.
  explicit GdrAllocations(const std::string& name);

  // None: the address is in none.
  std::optional<Allocation> of(const void* data) const;

 private:
  int (*get_attributes_)(unsigned, int*, void**, unsigned long long) = nullptr;
};

// Whole pages of a GPU's memory, mapped while this lives. Outlived by the library.
class GdrPages {
 public:
  static constexpr uintptr_t kPageBytes = 64 << 10;  // a mapping begins at a multiple

  // Throws std::runtime_error.
  GdrPages(const GdrLibrary& library, uintptr_t begin, uintptr_t end);
  ~GdrPages();
  GdrPages(const GdrPages&) = delete;
  GdrPages& operator=(const GdrPages&) = delete;

  void read(void* to, const void* from, int64_t bytes) const;
  // Returns when the GPU has the bytes: what it is asked for from then on sees them.
  void write(void* to, const void* from, int64_t bytes) const;

 private:
  std::byte* at(const void* data, int64_t bytes) const;

  const GdrLibrary& library_;
  const uintptr_t begin_, end_;
  GdrLibrary::Handle handle_{};
  void* view_ = nullptr;      // what map() gave
  uintptr_t view_begin_ = 0;  // the address on the GPU that it begins with
};

}  // namespace smp::device
