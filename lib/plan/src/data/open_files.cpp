#include "smp/plan/data/open_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "smp/plan/base/errors.h"
#include "smp/plan/files/git_lfs.h"
#include "smp/plan/files/unreadable.h"

namespace smp::data {
namespace {

constexpr size_t kMostOpen = 64;  // well below the least limit of descriptors, 256

std::string cannot_read_data(const std::string& key, const std::string& path) {
  return fmt::format("{}: cannot read {}", key, path);
}

}  // namespace

class OpenFiles::Descriptor {
 public:
  // Without waiting: a pipe is refused, not waited for.
  explicit Descriptor(const std::string& path)
      : number_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int number() const { return number_; }  // below 0: errno says why

 private:
  const int number_;
};

size_t OpenFiles::add(const std::string& path, const std::string& key) {
  const auto descriptor = std::make_shared<const Descriptor>(path);
  if (descriptor->number() < 0) files::throw_unreadable(cannot_read_data(key, path), errno);
  struct stat status {};
  if (::fstat(descriptor->number(), &status) != 0)
    files::throw_unreadable(cannot_read_data(key, path), errno);
  if (S_ISDIR(status.st_mode)) files::throw_unreadable(cannot_read_data(key, path), EISDIR);
  if (!S_ISREG(status.st_mode))
    throw ConfigError(fmt::format("{}: not a regular file", cannot_read_data(key, path)));
  if (const std::string lfs = files::git_lfs_complaint_of(path); !lfs.empty())
    throw ConfigError(fmt::format("{}: {}: {}", key, path, lfs));
  files_.push_back({.path = path, .key = key, .bytes = status.st_size, .known = {}, .open = {}});
  return files_.size() - 1;
}

std::shared_ptr<const OpenFiles::Descriptor> OpenFiles::descriptor(size_t file) const {
  const std::lock_guard lock(mutex_);
  File& wanted = files_[file];
  if (wanted.open) return wanted.open;
  auto descriptor = std::make_shared<const Descriptor>(wanted.path);
  if (descriptor->number() < 0) {
    throw std::system_error(errno, std::generic_category(),
                            cannot_read_data(wanted.key, wanted.path));
  }
  opened_.push_back(file);
  if (opened_.size() > kMostOpen) {
    files_[opened_.front()].open.reset();
    opened_.pop_front();
  }
  wanted.open = descriptor;
  return descriptor;
}

void OpenFiles::read(size_t file, int64_t offset, int64_t count, void* out) const {
  const auto open = descriptor(file);
  auto* to = static_cast<char*>(out);
  while (count > 0) {
    const ssize_t got = ::pread(open->number(), to, static_cast<size_t>(count), offset);
    if (got < 0 && errno == EINTR) continue;
    const File& from = files_[file];
    if (got < 0)
      throw std::system_error(errno, std::generic_category(),
                              cannot_read_data(from.key, from.path));
    if (got == 0) {
      throw std::runtime_error(
          fmt::format("{}: {} is now shorter than the {} bytes that it had at the start of the run",
                      from.key, from.path, from.bytes));
    }
    to += got;
    offset += got;
    count -= got;
  }
}

void OpenFiles::identify(const std::string& folder) {
  std::vector<std::string> paths;
  for (const File& file : files_) paths.push_back(file.path);
  std::vector<files::KnownFile> known = files::look_at_files(folder, paths);
  for (size_t i = 0; i < files_.size(); ++i) {
    if (known[i].identity.bytes != files_[i].bytes) {
      throw std::runtime_error(
          fmt::format("{}: {} is being written: its size changed from {} to {} bytes; wait until "
                      "the file is complete",
                      files_[i].key, files_[i].path, files_[i].bytes, known[i].identity.bytes));
    }
    files_[i].known = std::move(known[i]);
  }
  identified_ = true;
}

std::vector<files::FileIdentity> OpenFiles::identities() const {
  std::vector<files::FileIdentity> identities;
  for (const File& file : files_) identities.push_back(file.known.identity);
  return identities;
}

void OpenFiles::check_unchanged(size_t file) const {
  if (!identified_) return;
  const File& looked_at = files_[file];
  struct stat status {};
  if (::stat(looked_at.path.c_str(), &status) != 0) {
    throw std::system_error(errno, std::generic_category(),
                            cannot_read_data(looked_at.key, looked_at.path));
  }
  const files::FileStamp now{status.st_dev, status.st_ino, status.st_size,
                             status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec};
  smp::files::check_unchanged(looked_at.known, looked_at.path, now);
}

}  // namespace smp::data
