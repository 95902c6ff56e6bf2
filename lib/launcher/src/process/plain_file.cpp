#include "smp/launcher/process/plain_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

namespace smp::process {

system::FileDescriptor open_plain_file(const std::string& path, int flags) {
  system::FileDescriptor file(open(path.c_str(), flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666));
  if (!file) return file;
  struct stat status {};
  const bool writes = (flags & O_ACCMODE) != O_RDONLY;
  if (fstat(file.number(), &status) == 0 &&
      (S_ISREG(status.st_mode) || (writes && S_ISCHR(status.st_mode))))
    return file;
  file.reset();
  errno = ENXIO;
  return file;
}

std::string read_plain_file(const std::string& path, size_t most_bytes) {
  const system::FileDescriptor file = open_plain_file(path, O_RDONLY);
  std::string text;
  char block[64 << 10];
  while (file && text.size() < most_bytes) {
    const ssize_t size =
        read(file.number(), block, std::min(sizeof block, most_bytes - text.size()));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    text.append(block, static_cast<size_t>(size));
  }
  return text;
}

bool write_plain_file(const std::string& path, const std::string& text) {
  system::FileDescriptor file = open_plain_file(path, O_WRONLY | O_CREAT | O_TRUNC);
  if (!file) return false;
  for (std::string_view left = text; !left.empty();) {
    const ssize_t size = write(file.number(), left.data(), left.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return false;
    left.remove_prefix(static_cast<size_t>(size));
  }
  return file.close();
}

}  // namespace smp::process
