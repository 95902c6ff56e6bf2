#include "smp/plan/files/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <utility>

namespace smp::files {

ssize_t FileCalls::write_at(int fd, const void* data, size_t bytes, int64_t offset) {
  return ::pwrite(fd, data, bytes, offset);
}

int FileCalls::sync(int fd) { return ::fsync(fd); }

int FileCalls::rename(const char* from, const char* to) { return std::rename(from, to); }

FileCalls& system_file_calls() {
  static FileCalls calls;
  return calls;
}

AtomicFile::AtomicFile(const std::string& path, FileCalls& calls)
    : path_(path), temporary_(fmt::format("{}.tmp-{}", path, ::getpid())), calls_(calls) {
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) {
    throw std::runtime_error(fmt::format("cannot write {}: {}", path_, std::strerror(errno)));
  }
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write_at(int64_t offset, const void* data, int64_t bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t wrote = calls_.write_at(fd_, from, static_cast<size_t>(bytes), offset);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) fail(errno);
    from += wrote;
    offset += wrote;
    bytes -= wrote;
  }
}

void AtomicFile::commit() {
  if (calls_.sync(fd_) != 0) fail(errno);
  if (::close(std::exchange(fd_, -1)) != 0 ||
      calls_.rename(temporary_.c_str(), path_.c_str()) != 0) {
    fail(errno);
  }
  // The name itself is durable once the folder is.
  sync_folder(std::filesystem::absolute(path_).parent_path().string(), calls_);
}

void AtomicFile::fail(int error) {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  ::unlink(temporary_.c_str());
  throw std::runtime_error(fmt::format("cannot write {}: {}{}", path_, std::strerror(error),
                                       error == ENOSPC ? "; free some space there or give another "
                                                         "folder with --run-dir"
                                                       : ""));
}

void write_file_atomically(const std::string& path, std::string_view text, FileCalls& calls) {
  AtomicFile file(path, calls);
  file.write_at(0, text.data(), static_cast<int64_t>(text.size()));
  file.commit();
}

void sync_folder(const std::string& path, FileCalls& calls) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool failed = fd < 0 || calls.sync(fd) != 0;
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (failed) {
    throw std::runtime_error(fmt::format("cannot write {}: {}", path, std::strerror(error)));
  }
}

}  // namespace smp::files
