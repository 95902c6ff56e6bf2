#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "smp/plan/system/file_descriptor.h"

namespace smp::process {

// The write end of a process's standard input. Buffers the bytes that do not fit into the pipe, and
// never blocks. One thread.
class InputPipe {
 public:
  explicit InputPipe(system::FileDescriptor write_end) : write_end_(std::move(write_end)) {}

  void give(std::string_view bytes);
  void end();      // closes the pipe after the buffered bytes
  void pass_on();  // writes as many buffered bytes as the pipe takes now

  // -1: closed, by end() or by the process.
  int number() const { return write_end_.number(); }
  bool wants_to_write() const { return write_end_ && !waiting_.empty(); }
  uint64_t taken() const { return taken_; }  // bytes written, or dropped because of a closed pipe

 private:
  system::FileDescriptor write_end_;
  std::string waiting_;
  uint64_t taken_ = 0;
  bool over_ = false;
};

}  // namespace smp::process
