#pragma once

#include <cstddef>

namespace smp::shm {

// Memory shared by ranks: anonymous (threads of one process) or a memfd (processes). Sparse: only
// pages that somebody touches cost memory. Move-only.
class Mapping {
 public:
  static Mapping anonymous(size_t bytes);
  static Mapping memfd(size_t bytes);  // keeps the descriptor, for the other processes
  static Mapping of_fd(int fd);        // takes the descriptor over

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

// Makes the pages of [data, data + bytes) real, so that a machine or a control group without memory
// gives an exception here and not a SIGBUS or a SIGKILL later.
void populate(std::byte* data, size_t bytes);
// Maps pages that another process has made real, where the kernel can; nothing is wrong if not.
void map_pages(std::byte* data, size_t bytes);
// A core file of a rank need not hold what all ranks share.
void leave_out_of_dumps(std::byte* data, size_t bytes);
// Gives the pages back; they read as zeros afterwards.
void release(std::byte* data, size_t bytes);

}  // namespace smp::shm
