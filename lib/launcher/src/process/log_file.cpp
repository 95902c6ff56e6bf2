#include "smp/launcher/process/log_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <system_error>

#include "smp/launcher/process/output.h"

namespace smp::process {
namespace {

[[noreturn]] void fail(const char* what, const std::string& path) {
  throw std::system_error(errno, std::generic_category(),
                          std::string("cannot ") + what + " log '" + path + "'");
}

}  // namespace

LogFile::LogFile(const std::string& path, LogLimit limit) : path_(path), limit_(limit) { open(); }

void LogFile::open() {
  // O_NONBLOCK: a FIFO without a reader is an error (ENXIO) instead of a wait.
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  file_ = system::FileDescriptor(::open(path_.c_str(), kFlags, 0666));
  if (!file_) fail("open", path_);
  fcntl(file_.number(), F_SETFL, fcntl(file_.number(), F_GETFL) & ~O_NONBLOCK);
  struct stat now {};
  if (fstat(file_.number(), &now) != 0 || !S_ISREG(now.st_mode)) return;
  size_ = now.st_size;
  // file_ is open for writing only.
  const system::FileDescriptor file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  char last = '\n';
  if (size_ > 0 && file && pread(file.number(), &last, 1, size_ - 1) == 1) is_cut_ = last != '\n';
}

void LogFile::write(std::string_view bytes) {
  while (limit_.bytes > 0 && size_ + static_cast<int64_t>(bytes.size()) > limit_.bytes) {
    const size_t before = bytes_before_rotation(bytes);
    append(bytes.substr(0, before));
    if (before == bytes.npos) return;
    rotate();
    bytes.remove_prefix(before);
  }
  append(bytes);
}

// The number of bytes that still go into the full log, up to a line end. npos: all bytes, without a
// rotation, because the last line is not complete.
size_t LogFile::bytes_before_rotation(std::string_view bytes) const {
  const auto room = static_cast<size_t>(std::max<int64_t>(limit_.bytes - size_, 0));
  const size_t fits = room == 0 ? bytes.npos : bytes.rfind('\n', room - 1);
  if (fits != bytes.npos) return fits + 1;
  if (at_line_start_ && size_ > 0) return 0;
  const size_t end = bytes.find('\n', room);
  const size_t longest = room + LineSplitter::kLongestLine;
  if (end != bytes.npos && end < longest) return end + 1;
  const int64_t after = size_ + static_cast<int64_t>(bytes.size());
  if (after <= limit_.bytes + static_cast<int64_t>(LineSplitter::kLongestLine)) return bytes.npos;
  return std::min(longest, bytes.size());
}

void LogFile::append(std::string_view bytes) {
  if (bytes.empty()) return;
  if (is_cut_) write_all("\n");
  is_cut_ = false;
  write_all(bytes);
}

void LogFile::write_all(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t size = ::write(file_.number(), bytes.data(), bytes.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) {
      is_cut_ = !at_line_start_;
      fail("write", path_);
    }
    at_line_start_ = bytes[static_cast<size_t>(size) - 1] == '\n';
    size_ += size;
    bytes.remove_prefix(static_cast<size_t>(size));
  }
}

void LogFile::rotate() {
  const auto old = [&](int age) { return path_ + "." + std::to_string(age); };
  for (int age = limit_.kept; age > 1; --age) {
    if (std::rename(old(age - 1).c_str(), old(age).c_str()) != 0 && errno != ENOENT)
      fail("rename", old(age - 1));
  }
  const bool moved = limit_.kept > 0 ? std::rename(path_.c_str(), old(1).c_str()) == 0
                                     : ::unlink(path_.c_str()) == 0;
  if (!moved) fail("rename", path_);
  size_ = 0;
  at_line_start_ = true;
  is_cut_ = false;
  open();
}

}  // namespace smp::process
