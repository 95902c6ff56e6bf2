#include "agent/received_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "agent/agent_messages.h"
#include "agent/file_messages.h"
#include "smp/launcher/health/bytes_text.h"
#include "smp/launcher/reach/frame_channel.h"
#include "smp/plan/base/random_hex.h"

namespace smp::agent {
namespace fs = std::filesystem;

namespace {

FilesRefused cannot_write(const std::string& path) {
  return FilesRefused(fmt::format("cannot write '{}': {}", path, strerror(errno)));
}

// Names from the other side must not lead out of the folder.
bool stays_below(const fs::path& name) {
  if (name.empty() || name.is_absolute() || !name.has_filename()) return false;
  for (const fs::path& part : name) {
    if (part == "..") return false;
  }
  return true;
}

}  // namespace

std::string ReceivedFolder::new_path() {
  const char* folder = std::getenv("TMPDIR");
  return fmt::format("{}/smp-push-{}", folder == nullptr ? "/tmp" : folder, random_hex(8));
}

void ReceivedFolder::remove() {
  std::error_code error;
  if (!path_.empty()) fs::remove_all(path_, error);
}

bool ReceivedFolder::take(std::string_view message) {
  wire::PayloadReader reader(message);
  const auto kind = static_cast<FileMessage>(reader.number());
  if (!made_ && kind != FileMessage::kRoom)
    throw wire::ProtocolError("a file before the room for it");
  switch (kind) {
    case FileMessage::kRoom: make(reader.number()); return false;
    case FileMessage::kFile: {
      const std::string_view name = reader.text();
      const uint64_t bytes = reader.number();
      begin_file(name, bytes, reader.number() != 0);
      return false;
    }
    case FileMessage::kPart: {
      const std::string part(reader.text());
      if (!file_ || part.size() > left_) throw wire::ProtocolError("bytes of no file");
      for (size_t done = 0; done < part.size();) {
        const ssize_t size = write(file_.number(), part.data() + done, part.size() - done);
        if (size < 0 && errno == EINTR) continue;
        if (size < 0) throw cannot_write(being_written());
        done += static_cast<size_t>(size);
      }
      left_ -= part.size();
      sum_ = sum_with(sum_, part);
      return false;
    }
    case FileMessage::kEnd: end_file(reader.number()); return false;
    case FileMessage::kAll: return true;
  }
  throw wire::ProtocolError("an unknown message about files");
}

void ReceivedFolder::make(uint64_t bytes) {
  if (path_.empty()) throw FilesRefused("this host takes no files");
  if (mkdir(path_.c_str(), 0700) != 0)
    throw FilesRefused(fmt::format("cannot make folder '{}': {}", path_, strerror(errno)));
  made_ = true;
  struct statvfs room {};
  if (statvfs(path_.c_str(), &room) != 0) throw cannot_write(path_);
  const uint64_t free = static_cast<uint64_t>(room.f_bavail) * room.f_frsize;
  if (free < bytes)
    throw FilesRefused(fmt::format(
        "not enough space for the pushed files in {}: {} needed, {} free (set TMPDIR to another "
        "folder)",
        fs::path(path_).parent_path().string(), health::text_of_bytes(static_cast<int64_t>(bytes)),
        health::text_of_bytes(static_cast<int64_t>(free))));
}

void ReceivedFolder::begin_file(std::string_view name, uint64_t bytes, bool executable) {
  if (file_ || !stays_below(name)) throw wire::ProtocolError("a file with a wrong name");
  name_ = name;
  left_ = bytes;
  sum_ = 0;
  executable_ = executable;
  std::error_code error;
  const fs::path folder = fs::path(path_ + "/" + name_).parent_path();
  fs::create_directories(folder, error);
  if (error)
    throw FilesRefused(
        fmt::format("cannot make folder '{}': {}", folder.string(), error.message()));
  file_ = system::FileDescriptor(
      open(being_written().c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file_) throw cannot_write(being_written());
}

void ReceivedFolder::end_file(uint64_t sum) {
  if (!file_) throw wire::ProtocolError("the end of no file");
  if (left_ != 0 || sum != sum_)
    throw FilesRefused(fmt::format("'{}' arrived with other bytes than were sent", name_));
  if (executable_ && fchmod(file_.number(), 0700) != 0) throw cannot_write(being_written());
  // Some file systems report missing space or quota only on close.
  if (!file_.close()) throw cannot_write(being_written());
  if (rename(being_written().c_str(), (path_ + "/" + name_).c_str()) != 0)
    throw cannot_write(path_ + "/" + name_);
}

}  // namespace smp::agent
