#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "smp/plan/files/file_identity.h"

namespace smp::data {

// The files of a data set. Each read takes the bytes that a sample needs. Files are never mapped: a
// mapped file that shrinks ends the process without a message. At most a few files are open, those
// used last. Safe from any thread once all are added.
class OpenFiles {
 public:
  // Returns the file's number. Throws ConfigError, with `key` and the path, if the file is missing,
  // no plain file, unreadable or a Git LFS pointer; std::system_error if the machine fails.
  size_t add(const std::string& path, const std::string& key);

  const std::string& path(size_t file) const { return files_[file].path; }
  int64_t bytes(size_t file) const { return files_[file].bytes; }

  // Puts bytes [offset, offset + count) where `out` says. Throws std::runtime_error if the file has
  // become shorter, std::system_error if it cannot be read.
  void read(size_t file, int64_t offset, int64_t count, void* out) const;

  // Samples the content of all files, which must stay the same from now on. Throws
  // std::runtime_error for a file that was written to since it was added. Names are relative to
  // `folder`.
  void identify(const std::string& folder);
  std::vector<files::FileIdentity> identities() const;  // in the order of adding

  // Throws std::runtime_error if the file at the path is not the one that identify() saw. Call it
  // after read(): then the bytes that were read are those that were there before.
  void check_unchanged(size_t file) const;

 private:
  class Descriptor;
  struct File {
    std::string path, key;
    int64_t bytes = 0;
    files::KnownFile known;
    std::shared_ptr<const Descriptor> open;  // null: none is held
  };

  std::shared_ptr<const Descriptor> descriptor(size_t file) const;

  mutable std::mutex mutex_;
  mutable std::vector<File> files_;
  mutable std::deque<size_t> opened_;  // the ones that are held, oldest first
  bool identified_ = false;
};

}  // namespace smp::data
