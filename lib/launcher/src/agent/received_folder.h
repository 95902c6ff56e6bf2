#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "smp/plan/system/file_descriptor.h"

namespace smp::agent {

// A host cannot take the files; what() says why, for the user.
class FilesRefused : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The folder in which an agent keeps the files that it receives. Only its owner may read it. The
// first message makes the folder, and this object removes it. A file gets its name only when it is
// whole and its checksum fits. One thread.
class ReceivedFolder {
 public:
  // A name that is not taken, below TMPDIR, or /tmp.
  static std::string new_path();

  explicit ReceivedFolder(std::string path) : path_(std::move(path)) {}
  ~ReceivedFolder() { remove(); }
  ReceivedFolder(const ReceivedFolder&) = delete;
  ReceivedFolder& operator=(const ReceivedFolder&) = delete;

  const std::string& path() const { return path_; }
  // True with the last message. Throws FilesRefused, ProtocolError.
  bool take(std::string_view message);
  void remove();

 private:
  void make(uint64_t bytes);
  void begin_file(std::string_view name, uint64_t bytes, bool executable);
  void end_file(uint64_t sum);
  std::string being_written() const { return path_ + "/" + name_ + ".part"; }

  std::string path_;
  bool made_ = false;
  std::string name_;  // of the file that is being written
  system::FileDescriptor file_;
  uint64_t left_ = 0, sum_ = 0;
  bool executable_ = false;
};

}  // namespace smp::agent
