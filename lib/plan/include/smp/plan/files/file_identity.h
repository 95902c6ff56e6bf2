#pragma once

#include <cstdint>
#include <string>
#include <vector>

// Whether two machines, or the same one later, hold the same file: told without reading all of it.
// Any thread.
namespace smp::files {

struct FileIdentity {
  std::string name;  // the path, as it was asked for
  int64_t bytes = 0;
  uint64_t sampled_hash = 0;  // of the size and of blocks spread over the content
  bool operator==(const FileIdentity&) const = default;
};

// "18000 bytes (sampled content 1f0c...)"
std::string text_of(const FileIdentity& file);

// What the file system says of a file on this machine: another one after each change of its
// content.
struct FileStamp {
  uint64_t device = 0, inode = 0;
  int64_t bytes = 0, written_ns = 0;
  bool operator==(const FileStamp&) const = default;
};

// Of an open file. Throws std::system_error.
FileStamp stamp_of(int descriptor, const std::string& path);

// A file as it was when somebody looked.
struct KnownFile {
  FileIdentity identity;
  FileStamp stamp;
  int64_t blocks = 0;  // that were looked at, at most
};

inline constexpr int64_t kIdentityBlockBytes = 256 << 10;
inline constexpr int64_t kIdentityBlocks = 64;

// Reads the first block, the last, and others evenly between them; a file of no more than so many
// blocks whole, and none of them: its size alone. Throws std::system_error: "cannot read
// '/data/a.txt': Input/output error".
KnownFile look_at_file(const std::string& path, int64_t blocks = kIdentityBlocks);
FileIdentity identify_file(const std::string& path);

// Throws std::runtime_error where the file is another one than it was: "'/data/a.txt' has changed
// since the run began: it had 18000 bytes (...), and has ...". `now`: its present stamp; where that
// is the one that it had, nothing is read.
void check_unchanged(const KnownFile& before, const std::string& path, const FileStamp& now);

// Many files, each by fewer blocks the more there are; of more than 256 the sizes, and the content
// of 256 of them, evenly spread over the list. Their names are those below `folder`.
std::vector<KnownFile> look_at_files(const std::string& folder,
                                     const std::vector<std::string>& paths);

}  // namespace smp::files
