#include "smp/plan/files/text_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "smp/plan/base/errors.h"
#include "smp/plan/base/random_hex.h"
#include "smp/plan/files/git_lfs.h"
#include "smp/plan/files/unreadable.h"

namespace smp::files {
namespace {

namespace fs = std::filesystem;

using Inode = std::pair<dev_t, ino_t>;

// The same by every name: a link, another path.
std::optional<Inode> inode_of(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  return Inode{status.st_dev, status.st_ino};
}

// A pipe that nobody reads is refused (ENXIO), not waited for: a caller may be one that must answer
// signals and keep a time-out.
std::FILE* open_pipe_or_device(const std::string& path) {
  const int number = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (number < 0) return nullptr;
  fcntl(number, F_SETFL, fcntl(number, F_GETFL) & ~O_NONBLOCK);
  return ::fdopen(number, "w");
}

struct Inputs {
  std::mutex mutex;
  std::set<Inode> files;
};

Inputs& inputs() {
  static Inputs all;
  return all;
}

void refuse_input(const std::string& path) {
  const auto inode = inode_of(path);
  if (!inode) return;
  const std::lock_guard lock(inputs().mutex);
  if (inputs().files.count(*inode) != 0) {
    throw ConfigError(
        fmt::format("{}: the output would overwrite an input; write to another file", path));
  }
}

}  // namespace

std::string read_text_file(const std::string& path, std::string_view what) {
  constexpr size_t kMostTextBytes = size_t{256} << 20;
  std::error_code unknown;
  if (fs::is_directory(path, unknown)) {
    throw ConfigError(fmt::format("{}: this is a folder; name the {} in it", path, what));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) throw_unreadable(path, errno);
  std::string text;
  char block[65536];
  while (file.read(block, sizeof block) || file.gcount() > 0) {
    text.append(block, static_cast<size_t>(file.gcount()));
    if (text.size() > kMostTextBytes) {
      throw ConfigError(fmt::format("{}: larger than 256 MiB, the limit of a {}", path, what));
    }
  }
  if (file.bad()) throw_unreadable(path, EIO);
  if (const std::string lfs = git_lfs_complaint(text); !lfs.empty()) {
    throw ConfigError(fmt::format("{}: {}", path, lfs));
  }
  remember_input(path);
  return text;
}

void remember_input(const std::string& path) {
  const auto inode = inode_of(path);
  if (!inode) return;
  const std::lock_guard lock(inputs().mutex);
  inputs().files.insert(*inode);
}

void refuse_output(const std::string& path, FileKind kind) {
  refuse_input(path);
  const std::string head = head_of_file(path);
  if (head.empty() || kind_of_text(head) == kind) return;
  throw ConfigError(
      fmt::format("{}: the file holds {}, which {} would overwrite: write to another file, or "
                  "remove this one first",
                  path, name_of(kind_of_text(head)), name_of(kind)));
}

void write_text_file(const std::string& path, std::string_view text, const std::string& edited) {
  if (edited.empty() || inode_of(path) != inode_of(edited)) refuse_output(path, kind_of_text(text));
  std::error_code none;
  const fs::file_status status = fs::status(path, none);
  // A device or a pipe is written to, not replaced; of a link, what it points to is replaced.
  const bool replaced = !fs::exists(status) || fs::is_regular_file(status);
  const std::string target = fs::is_symlink(path, none) && fs::is_regular_file(status)
                                 ? fs::canonical(path, none).string()
                                 : path;
  // A name that nobody else can tell, and that is not there: others may write to the folder, too.
  const std::string unfinished =
      replaced ? fmt::format("{}.{}.unfinished", target, random_hex(8)) : target;
  errno = 0;
  std::FILE* const file =
      replaced ? std::fopen(unfinished.c_str(), "wxe") : open_pipe_or_device(target);
  bool is_whole = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file != nullptr) is_whole = std::fclose(file) == 0 && is_whole;
  if (is_whole && replaced && fs::exists(status))
    fs::permissions(unfinished, status.permissions(), none);
  if (is_whole && (!replaced || std::rename(unfinished.c_str(), target.c_str()) == 0)) return;
  const std::string reason = std::strerror(errno);
  if (replaced && file != nullptr) std::remove(unfinished.c_str());
  throw ConfigError(fmt::format("{}: cannot be written: {}", path, reason));
}

}  // namespace smp::files
