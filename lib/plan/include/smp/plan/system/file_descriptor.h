#pragma once

#include <unistd.h>

#include <utility>

namespace smp::system {

// An open file, socket, pipe end or other kernel handle. Its owner closes it. Move-only.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int number) : number_(number) {}
  FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      reset();
      number_ = std::exchange(other.number_, -1);
    }
    return *this;
  }
  ~FileDescriptor() { reset(); }

  int number() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }
  // Gives the open descriptor to the caller, who closes it.
  int release() { return std::exchange(number_, -1); }
  void reset() { close(); }
  // False, with errno, if the system could not, for example because the last written bytes have no
  // room.
  bool close() { return number_ < 0 || ::close(std::exchange(number_, -1)) == 0; }

 private:
  int number_ = -1;
};

}  // namespace smp::system
