#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "smp/plan/files/file_identity.h"

namespace smp::data {

// The files of a data set, read where a sample needs them and never mapped: a mapped file that
// shrinks ends the process without a word. Of many files the ones used last are open. Safe from any
// thread once all are added.
class OpenFiles {
 public:
  // Returns the file's number. Throws ConfigError, with `key` and the path, for what is missing, no
  // plain file, not readable, or a Git LFS pointer; std::system_error where the machine fails.
  size_t add(const std::string& path, const std::string& key);

  const std::string& path(size_t file) const { return files_[file].path; }
  int64_t bytes(size_t file) const { return files_[file].bytes; }

  // Puts bytes [offset, offset + count) where `out` says. Throws std::runtime_error where the file
  // has become shorter, std::system_error where it cannot be read.
  void read(size_t file, int64_t offset, int64_t count, void* out) const;

  // Looks at the content of all, which from now on must stay as it is. Throws std::runtime_error
  // for one that was written to since it was added. `folder`: what names are below.
  void identify(const std::string& folder);
  std::vector<files::FileIdentity> identities() const;  // in the order of adding

  // Throws std::runtime_error where the file at the path is another than identify() saw. To be
  // called behind read(), so that what was read is what was there before.
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
