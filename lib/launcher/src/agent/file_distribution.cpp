#include "smp/launcher/agent/file_distribution.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "agent/agent_messages.h"
#include "agent/file_messages.h"
#include "smp/launcher/process/plain_file.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/base/proof.h"

namespace smp::agent {
namespace fs = std::filesystem;

namespace {

constexpr int64_t kPartBytes = 256 << 10;

std::string begin(FileMessage kind) {
  return wire::PayloadWriter().number(static_cast<uint64_t>(kind)).bytes();
}

ConfigError cannot_push(const std::string& path, const std::string& why) {
  return ConfigError(fmt::format("--push '{}': {}", path, why));
}

bool is_outside(const std::string& name) { return name == ".." || name.starts_with("../"); }

// The path relative to the working folder. The given path may reach the working folder through
// symbolic links, for example if /home is a link. A link that is itself sent keeps its own name.
std::string name_of(const fs::path& path) {
  const fs::path here = fs::current_path(), there = fs::absolute(path).lexically_normal();
  std::string name = there.lexically_relative(here).string();
  if (!is_outside(name)) return name;
  std::error_code error;
  if (fs::equivalent(there, here, error)) return ".";
  const fs::path folder = fs::weakly_canonical(there.parent_path(), error);
  return error ? name : (folder / there.filename()).lexically_relative(here).string();
}

void add_folder(const std::string& said, const fs::path& folder,
                std::map<std::string, FileToSend>& files) {
  const size_t before = files.size();
  try {
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      const bool is_link = entry.is_symlink();
      if (entry.is_directory() && !is_link) continue;
      const std::string path = entry.path().string();
      if (!entry.is_regular_file())
        throw cannot_push(said, fmt::format("'{}' is {}", path,
                                            is_link ? "a link whose target does not exist"
                                                    : "not a regular file"));
      files[name_of(entry.path())] = {path, name_of(entry.path())};
    }
  } catch (const fs::filesystem_error& error) {
    throw cannot_push(said, error.code().message());
  }
  if (files.size() == before) throw cannot_push(said, "the folder has no files");
}

}  // namespace

uint64_t sum_with(uint64_t sum, const std::string& part) { return siphash(sum, part.size(), part); }

std::vector<FileToSend> files_to_send(const std::vector<std::string>& paths) {
  std::map<std::string, FileToSend> files;
  for (const std::string& path : paths) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    const std::string name = path.empty() ? ".." : name_of(path);
    if (is_outside(name))
      throw cannot_push(
          path,
          "only files below the working folder can be sent, because each keeps its relative path");
    if (!fs::exists(status)) throw cannot_push(path, "there is no such file");
    if (fs::is_directory(status))
      add_folder(path, path, files);
    else if (fs::is_regular_file(status))
      files[name] = {path, name};
    else
      throw cannot_push(path, "not a regular file");
  }
  std::vector<FileToSend> sorted;
  for (auto& [name, file] : files) sorted.push_back(std::move(file));
  return sorted;
}

FileSource::FileSource(std::vector<FileToSend> files) : files_(std::move(files)) {
  for (const FileToSend& file : files_) {
    struct stat status {};
    if (stat(file.from.c_str(), &status) != 0 || access(file.from.c_str(), R_OK) != 0)
      throw cannot_push(file.from, strerror(errno));
    bytes_.push_back(status.st_size);
  }
}

std::optional<std::string> FileSource::next() {
  switch (step_) {
    case Step::kRoom: {
      step_ = files_.empty() ? Step::kAll : Step::kFile;
      uint64_t all = 0;
      for (const int64_t bytes : bytes_) all += static_cast<uint64_t>(bytes);
      return begin(FileMessage::kRoom) + wire::PayloadWriter().number(all).bytes();
    }
    case Step::kFile: return open_file();
    case Step::kPart: return read_part();
    case Step::kAll: step_ = Step::kOver; return begin(FileMessage::kAll);
    case Step::kOver: break;
  }
  return std::nullopt;
}

std::string FileSource::open_file() {
  const FileToSend& file = files_[file_];
  open_ = process::open_plain_file(file.from, O_RDONLY);
  struct stat status {};
  if (!open_ || fstat(open_.number(), &status) != 0) throw cannot_push(file.from, strerror(errno));
  left_ = bytes_[file_];
  sum_ = 0;
  step_ = Step::kPart;
  return begin(FileMessage::kFile) + wire::PayloadWriter()
                                         .text(file.name)
                                         .number(static_cast<uint64_t>(left_))
                                         .number((status.st_mode & S_IXUSR) != 0 ? 1 : 0)
                                         .bytes();
}

std::string FileSource::read_part() {
  const FileToSend& file = files_[file_];
  std::string part(static_cast<size_t>(std::min(left_, kPartBytes)), '\0');
  const ssize_t size = part.empty() ? 0 : read(open_.number(), part.data(), part.size());
  if (size < 0) throw cannot_push(file.from, strerror(errno));
  if (size == 0 && left_ > 0)
    throw cannot_push(file.from, "the file changed while it was being sent");
  if (size == 0) {
    open_.reset();
    step_ = ++file_ < files_.size() ? Step::kFile : Step::kAll;
    return begin(FileMessage::kEnd) + wire::PayloadWriter().number(sum_).bytes();
  }
  part.resize(static_cast<size_t>(size));
  left_ -= size;
  sum_ = sum_with(sum_, part);
  return begin(FileMessage::kPart) + wire::PayloadWriter().text(part).bytes();
}

}  // namespace smp::agent
