#include "smp/plan/files/file_identity.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "smp/plan/base/xxh64.h"

namespace smp::files {
namespace {

constexpr int64_t kMostOpened = 256;      // files of a list
constexpr int64_t kMostListBlocks = 256;  // of all of them together, 64 MiB

[[noreturn]] void cannot_identify(const std::string& path, int error) {
  throw std::system_error(error, std::generic_category(), fmt::format("cannot read '{}'", path));
}

FileStamp stamp_of_status(const struct stat& info, const std::string& path) {
  if (S_ISDIR(info.st_mode)) cannot_identify(path, EISDIR);
  if (!S_ISREG(info.st_mode)) {
    throw std::system_error(EINVAL, std::generic_category(),
                            fmt::format("cannot read '{}': not a regular file", path));
  }
  return {info.st_dev, info.st_ino, info.st_size,
          info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec};
}

// Without waiting: a pipe that nobody writes to is refused like any other that is no plain file.
class LookedAtFile {
 public:
  explicit LookedAtFile(const std::string& path)
      : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (fd_ < 0) cannot_identify(path, errno);
  }
  ~LookedAtFile() { ::close(fd_); }
  LookedAtFile(const LookedAtFile&) = delete;
  LookedAtFile& operator=(const LookedAtFile&) = delete;

  int number() const { return fd_; }
  // Appends up to `count` bytes; fewer where the file ends.
  void read(int64_t offset, int64_t count, std::string& to) const {
    const size_t before = to.size();
    to.resize(before + static_cast<size_t>(count));
    int64_t done = 0;
    while (done < count) {
      const ssize_t got =
          ::pread(fd_, to.data() + before + done, static_cast<size_t>(count - done), offset + done);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) cannot_identify(path_, errno);
      if (got == 0) break;
      done += got;
    }
    to.resize(before + static_cast<size_t>(done));
  }

 private:
  const std::string& path_;
  int fd_;
};

FileStamp stamp_at(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) cannot_identify(path, errno);
  return stamp_of_status(info, path);
}

KnownFile known(const std::string& path, const FileStamp& stamp, std::string_view sample,
                int64_t blocks) {
  std::string hashed(reinterpret_cast<const char*>(&stamp.bytes), sizeof stamp.bytes);
  hashed.append(sample);
  return {{path, stamp.bytes, xxh64(hashed.data(), static_cast<int64_t>(hashed.size()))},
          stamp,
          blocks};
}

}  // namespace

std::string text_of(const FileIdentity& file) {
  return fmt::format("{} bytes (sampled content {:016x})", file.bytes, file.sampled_hash);
}

FileStamp stamp_of(int descriptor, const std::string& path) {
  struct stat info {};
  if (::fstat(descriptor, &info) != 0) cannot_identify(path, errno);
  return stamp_of_status(info, path);
}

KnownFile look_at_file(const std::string& path, int64_t blocks) {
  if (blocks == 0) return known(path, stamp_at(path), "", 0);
  const LookedAtFile file(path);
  const FileStamp stamp = stamp_of(file.number(), path);
  std::string sample;
  if (stamp.bytes <= blocks * kIdentityBlockBytes) {
    file.read(0, stamp.bytes, sample);
  } else {
    const int64_t last = stamp.bytes - kIdentityBlockBytes;
    const int64_t steps = std::max<int64_t>(blocks - 1, 1);
    for (int64_t block = 0; block < blocks; ++block) {
      // In parts, that no product overflows.
      file.read(last / steps * block + last % steps * block / steps, kIdentityBlockBytes, sample);
    }
  }
  return known(path, stamp, sample, blocks);
}

FileIdentity identify_file(const std::string& path) { return look_at_file(path).identity; }

void check_unchanged(const KnownFile& before, const std::string& path, const FileStamp& now) {
  if (now == before.stamp) return;
  const FileIdentity there = look_at_file(path, before.blocks).identity;
  const FileIdentity& was = before.identity;
  // If the content was never sampled, only the time can tell a change.
  const bool same = there.bytes == was.bytes && there.sampled_hash == was.sampled_hash;
  if (same && before.blocks > 0) return;
  throw std::runtime_error(fmt::format("'{}' has changed since the run began: it had {}, now {}",
                                       path, text_of(was),
                                       same ? "the same size, written since" : text_of(there)));
}

std::vector<KnownFile> look_at_files(const std::string& folder,
                                     const std::vector<std::string>& paths) {
  const auto count = static_cast<int64_t>(paths.size());
  const int64_t opened = std::min(count, kMostOpened);
  const int64_t blocks = count == 0 ? 0 : std::min(kIdentityBlocks, kMostListBlocks / opened);
  std::vector<KnownFile> files;
  for (int64_t i = 0; i < count; ++i) {
    const std::string& path = paths[static_cast<size_t>(i)];
    // One of each stretch of the list.
    const bool is_opened = i * opened / count != (i - 1) * opened / count || i == 0;
    files.push_back(look_at_file(path, is_opened ? blocks : 0));
    std::string& name = files.back().identity.name;
    if (name.starts_with(folder + "/")) name.erase(0, folder.size() + 1);
  }
  return files;
}

}  // namespace smp::files
