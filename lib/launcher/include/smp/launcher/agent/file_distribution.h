#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "smp/plan/system/file_descriptor.h"

// File distribution, --push: every host gets these files over its agent's connection before its
// ranks start. This is the sending side. ReceivedFolder is the receiving one.
namespace smp::agent {

struct FileToSend {
  std::string from;  // here
  std::string name;  // there: relative, without ".."
};

// The files that `paths` name, sorted. A folder stands for all files in it. Each file keeps its
// path relative to this process's folder. Throws ConfigError.
std::vector<FileToSend> files_to_send(const std::vector<std::string>& paths);

// The files as messages, read one piece at a time. One thread.
class FileSource {
 public:
  // Throws ConfigError for a file that cannot be read.
  explicit FileSource(std::vector<FileToSend> files);

  // The next message; none after the last. Throws ConfigError for a file that cannot be read, or
  // that changes meanwhile.
  std::optional<std::string> next();

 private:
  enum class Step { kRoom, kFile, kPart, kAll, kOver };

  std::string open_file();
  std::string read_part();

  std::vector<FileToSend> files_;
  std::vector<int64_t> bytes_;  // of each
  Step step_ = Step::kRoom;
  size_t file_ = 0;
  int64_t left_ = 0;  // of the open file
  uint64_t sum_ = 0;
  system::FileDescriptor open_;
};

}  // namespace smp::agent
