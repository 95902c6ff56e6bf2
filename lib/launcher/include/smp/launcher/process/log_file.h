#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "smp/plan/system/file_descriptor.h"

namespace smp::process {

// How large a log may become. A full one is renamed to "<path>.1", the one before it to ".2", and
// so on; what would be behind the last of `kept` is removed.
struct LogLimit {
  int64_t bytes = 0;  // 0: none
  int kept = 3;
};

// A log: its bytes as they come, after those that are there. A line that was cut by the end of a
// writer or a full disk gets its end first, so that it damages no other. A full log ends with a
// whole line, but a line of more than LineSplitter::kLongestLine may be cut. Errors are
// std::system_error with the path. One thread.
class LogFile {
 public:
  explicit LogFile(const std::string& path, LogLimit limit = {});
  void write(std::string_view bytes);
  const std::string& path() const { return path_; }

 private:
  void open();
  void append(std::string_view bytes);
  void write_all(std::string_view bytes);
  size_t bytes_before_rotation(std::string_view bytes) const;
  void rotate();

  std::string path_;
  LogLimit limit_;
  system::FileDescriptor file_;
  int64_t size_ = 0;
  bool at_line_start_ = true;
  bool is_cut_ = false;  // the last line has no end, and gets none from its writer
};

}  // namespace smp::process
