#pragma once

#include <unistd.h>

#include <utility>

namespace smp::system {

// An open file, pipe end or other kernel handle; closed with its owner. Movable, not shared.
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
  bool is_open() const { return number_ >= 0; }
  void reset() { close(); }
  // False, with errno, if the system could not, for example because the last written bytes have no
  // room.
  bool close() { return number_ < 0 || ::close(std::exchange(number_, -1)) == 0; }

 private:
  int number_ = -1;
};

}  // namespace smp::system
