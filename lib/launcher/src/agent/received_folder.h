#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "smp/plan/system/file_descriptor.h"

namespace smp::agent {

// A host cannot take the pushed files; what() is the reason, for the user.
class FilesRefused : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The folder for the files that an agent receives, readable only by its owner. The first message
// makes the folder; the destructor removes it. A file gets its final name only after all its bytes
// have arrived with the right checksum. One thread.
class ReceivedFolder {
 public:
  // An unused path below TMPDIR or /tmp.
  static std::string new_path();

  explicit ReceivedFolder(std::string path) : path_(std::move(path)) {}
  ~ReceivedFolder() { remove(); }
  ReceivedFolder(const ReceivedFolder&) = delete;
  ReceivedFolder& operator=(const ReceivedFolder&) = delete;

  const std::string& path() const { return path_; }
  // Returns true for the last message. Throws FilesRefused and ProtocolError.
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
