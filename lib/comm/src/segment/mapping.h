#pragma once

#include <cstddef>

namespace smp::segment {

// Memory shared by ranks: anonymous (threads of one process) or a memfd (processes). Only pages
// that are touched cost memory. Move-only. The functions that make one throw std::system_error.
class Mapping {
 public:
  static Mapping anonymous(size_t bytes);
  static Mapping memfd(size_t bytes);  // keeps the descriptor for the other processes
  static Mapping of_fd(int fd);        // takes over the descriptor

  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping();

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  int fd() const { return fd_; }
  void close_fd();

 private:
  Mapping(int fd, size_t bytes, int flags);

  int fd_ = -1;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// Allocates the pages of [data, data + bytes). Without memory in the machine or the control group
// it throws std::system_error here; otherwise a later access would give SIGBUS or SIGKILL.
void populate(std::byte* data, size_t bytes);
// Maps pages that another process has allocated, if the kernel can. A failure is harmless.
void map_pages(std::byte* data, size_t bytes);
// Excludes these bytes, which all ranks share, from core files.
void leave_out_of_dumps(std::byte* data, size_t bytes);
// Returns the pages to the kernel; they read as zeros afterwards.
void release(std::byte* data, size_t bytes);

}  // namespace smp::segment
