#include "smp/runtime/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <utility>

namespace smp {

AtomicFile::AtomicFile(const std::string& path)
    : path_(path), temporary_(fmt::format("{}.tmp-{}", path, ::getpid())) {
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
    const ssize_t wrote = ::pwrite(fd_, from, static_cast<size_t>(bytes), offset);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) fail(errno);
    from += wrote;
    offset += wrote;
    bytes -= wrote;
  }
}

void AtomicFile::commit() {
  if (::fsync(fd_) != 0) fail(errno);
  if (::close(std::exchange(fd_, -1)) != 0 || std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    fail(errno);
  }
  // The name itself is durable once the folder is.
  const std::filesystem::path folder = std::filesystem::absolute(path_).parent_path();
  const int folder_fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_fd < 0) fail(errno);
  const int failed = ::fsync(folder_fd);
  const int error = errno;
  ::close(folder_fd);
  if (failed != 0) fail(error);
}

void AtomicFile::fail(int error) {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  ::unlink(temporary_.c_str());
  throw std::runtime_error(fmt::format("cannot write {}: {}{}", path_, std::strerror(error),
                                       error == ENOSPC ? "; free some space there or give another "
                                                         "folder with --run-dir"
                                                       : ""));
}

void write_file_atomically(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write_at(0, text.data(), static_cast<int64_t>(text.size()));
  file.commit();
}

}  // namespace smp
