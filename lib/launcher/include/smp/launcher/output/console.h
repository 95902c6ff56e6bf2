#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "smp/launcher/job/host.h"

namespace smp::output {

// The launcher's own standard output and standard error. Each is written by a thread of its own, or
// both by one where they are the same file. So neither a stopped terminal nor a slow reader delays
// the supervision. Called from one thread.
class Console {
 public:
  static constexpr size_t kQueueBytes = 8 << 20;
  static constexpr std::chrono::seconds kPatience{5};

  Console(int out_fd, int err_fd);
  ~Console();  // flush(2 s); what a blocked terminal has not taken then is lost
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // What was written and nobody has: of which stream, and why.
  struct Loss {
    job::Stream stream = job::Stream::kOut;
    int error = 0;  // of write(2); 0: it was dropped while nobody read

    bool reader_has_gone() const;
    std::string text() const;  // "standard output cannot be written: No space left on device"
  };

  // Whole lines, or on a terminal a line that starts with kEraseLine and goes on later. While the
  // reader is stalled they are dropped and counted. The bytes are the ranks' own.
  void write(job::Stream stream, std::string_view lines);
  // Words of smp-launch itself, in which others may have chosen names: on standard error, or where
  // it is said.
  void say(std::string_view lines, job::Stream stream = job::Stream::kErr);

  // The first, from then on.
  std::optional<Loss> loss() const;

  // More than kQueueBytes wait for the reader: time to hold the ranks' output.
  bool full() const;
  // The reader has taken nothing for kPatience while the queue was full: do not wait for it.
  bool stalled() const;

  // Returns false if the reader has not taken everything in time.
  bool flush(std::chrono::milliseconds time);

 private:
  class Queue;
  std::shared_ptr<Queue> out_, err_;  // shared with the writing threads, which may outlive us
  int out_fd_ = -1, err_fd_ = -1;
  bool open_line_ = false;  // standard output stands in the middle of a line
};

}  // namespace smp::output
