#include "process/input_pipe.h"

#include <errno.h>
#include <unistd.h>

namespace smp::process {

void InputPipe::give(std::string_view bytes) {
  waiting_.append(bytes);
  pass_on();
}

void InputPipe::end() {
  over_ = true;
  pass_on();
}

void InputPipe::pass_on() {
  size_t done = 0;
  while (write_end_ && done < waiting_.size()) {
    const ssize_t size = write(write_end_.number(), waiting_.data() + done, waiting_.size() - done);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) break;
    if (size < 0) write_end_.reset();  // the process has closed its end
    if (size > 0) done += static_cast<size_t>(size);
  }
  if (!write_end_) done = waiting_.size();
  waiting_.erase(0, done);
  taken_ += done;
  if (over_ && waiting_.empty()) write_end_.reset();
}

}  // namespace smp::process
