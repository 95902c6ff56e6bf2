#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

// A file that appears under its name complete or not at all. The file is written as
// <name>.tmp-<pid>, synced and renamed, and the folder is synced. Errors are std::runtime_error
// with path and reason; the temporary file is removed then.
namespace smp::files {

// The system calls that a file needs. A test replaces them to end the process or fill the disk in
// the middle of a write. Results and errno are those of the calls.
class FileCalls {
 public:
  virtual ~FileCalls() = default;
  virtual ssize_t write_at(int fd, const void* data, size_t bytes, int64_t offset);
  virtual int sync(int fd);
  virtual int rename(const char* from, const char* to);
};
FileCalls& system_file_calls();

class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path, FileCalls& calls = system_file_calls());
  ~AtomicFile();  // removes the temporary file unless committed
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write_at(int64_t offset, const void* data, int64_t bytes);
  void commit();

 private:
  [[noreturn]] void fail(int error);

  std::string path_;
  std::string temporary_;
  FileCalls& calls_;
  int fd_ = -1;
};

void write_file_atomically(const std::string& path, std::string_view text,
                           FileCalls& calls = system_file_calls());

// Makes the names in a folder durable.
void sync_folder(const std::string& path, FileCalls& calls = system_file_calls());

}  // namespace smp::files
