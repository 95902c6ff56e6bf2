#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "smp/plan/system/file_descriptor.h"

// Files that every host gets before its ranks start, over the agents' own connections: --push. Here
// is the sending side; ReceivedFolder takes what it says.
namespace smp::agent {

struct FileToSend {
  std::string from;  // here
  std::string name;  // there: relative, without ".."
};

// What `paths` name, folders with all that is in them, sorted: each keeps its place below this
// process's folder. Throws ConfigError.
std::vector<FileToSend> files_to_send(const std::vector<std::string>& paths);

// The files as messages, read one piece at a time. One thread.
class FileSource {
 public:
  // Throws ConfigError for a file that cannot be read.
  explicit FileSource(std::vector<FileToSend> files);

  // None: that was all. Throws ConfigError for a file that cannot be read, or changes meanwhile.
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
