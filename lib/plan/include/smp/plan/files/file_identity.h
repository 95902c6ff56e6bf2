#pragma once

#include <cstdint>
#include <string>
#include <vector>

// Whether two machines, or one machine at two times, hold the same file, decided without reading
// all of it. Any thread.
namespace smp::files {

struct FileIdentity {
  std::string name;  // the path, as it was asked for
  int64_t bytes = 0;
  uint64_t sampled_hash = 0;  // of the size and of blocks spread over the content
  bool operator==(const FileIdentity&) const = default;
};

// "18000 bytes (sampled content 1f0c...)"
std::string text_of(const FileIdentity& file);

// The file system's record of a file on this machine. It changes with each change of the content.
struct FileStamp {
  uint64_t device = 0, inode = 0;
  int64_t bytes = 0, written_ns = 0;
  bool operator==(const FileStamp&) const = default;
};

// Of an open file. Throws std::system_error.
FileStamp stamp_of(int descriptor, const std::string& path);

// A file as it was at one moment.
struct KnownFile {
  FileIdentity identity;
  FileStamp stamp;
  int64_t blocks = 0;  // that were looked at, at most
};

inline constexpr int64_t kIdentityBlockBytes = 256 << 10;
inline constexpr int64_t kIdentityBlocks = 64;

// Hashes the first block, the last, and others evenly between them. A file of no more than `blocks`
// blocks is read whole. With 0 blocks only the size counts. Throws std::system_error: "cannot read
// '/data/a.txt': Input/output error".
KnownFile look_at_file(const std::string& path, int64_t blocks = kIdentityBlocks);
FileIdentity identify_file(const std::string& path);

// Throws std::runtime_error if the file has changed: "'/data/a.txt' has changed since the run
// began: it had 18000 bytes (...), and has ...". `now` is its present stamp; if the stamp is the
// old one, nothing is read.
void check_unchanged(const KnownFile& before, const std::string& path, const FileStamp& now);

// Identities of many files, with fewer blocks each the more there are. Of more than 256 files, all
// sizes count and the content of 256, evenly spread over the list. Names are relative to `folder`.
std::vector<KnownFile> look_at_files(const std::string& folder,
                                     const std::vector<std::string>& paths);

}  // namespace smp::files
