#pragma once

#include <cstdint>
#include <string>
#include <string_view>

// A file that appears under its name complete or not at all: written beside it as <name>.tmp-<pid>,
// synced, renamed, and the folder synced. Errors are std::runtime_error with path and reason; the
// temporary file is gone then.
namespace smp {

class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();  // removes the temporary file unless committed
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write_at(int64_t offset, const void* data, int64_t bytes);
  void commit();

 private:
  [[noreturn]] void fail(int error);

  std::string path_;
  std::string temporary_;
  int fd_ = -1;
};

void write_file_atomically(const std::string& path, std::string_view text);

}  // namespace smp
