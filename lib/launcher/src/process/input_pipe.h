#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "smp/plan/system/file_descriptor.h"

namespace smp::process {

// The near end of a process's standard input: keeps what the process has not read yet, and never
// blocks. One thread.
class InputPipe {
 public:
  explicit InputPipe(system::FileDescriptor write_end) : write_end_(std::move(write_end)) {}

  void give(std::string_view bytes);
  void end();      // closed when the process has been given all
  void pass_on();  // what the pipe takes now

  // -1: closed, also by a process that reads no more.
  int number() const { return write_end_.number(); }
  bool wants_to_write() const { return write_end_ && !waiting_.empty(); }
  uint64_t taken() const { return taken_; }  // bytes, and those that nobody will read

 private:
  system::FileDescriptor write_end_;
  std::string waiting_;
  uint64_t taken_ = 0;
  bool over_ = false;
};

}  // namespace smp::process
