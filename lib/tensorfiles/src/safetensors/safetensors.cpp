#include "smp/tensorfiles/safetensors/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "smp/plan/base/check.h"
#include "smp/plan/files/atomic_file.h"
#include "smp/plan/files/git_lfs.h"

namespace smp::safetensors {
namespace {

void read_exactly(int fd, const std::string& path, int64_t offset, int64_t bytes, void* out) {
  auto* to = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t got = ::pread(fd, to, static_cast<size_t>(bytes), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      throw SafetensorsError(fmt::format("{}: cannot read: {}", path,
                                         got < 0 ? std::strerror(errno) : "the file is cut off"));
    }
    to += got;
    offset += got;
    bytes -= got;
  }
}

}  // namespace

SafetensorsReader::SafetensorsReader(const std::string& path)
    : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
  struct stat info {};
  if (fd_ < 0 || ::fstat(fd_, &info) != 0) {
    throw SafetensorsError(fmt::format("{}: cannot read: {}", path, std::strerror(errno)));
  }
  try {
    if (!S_ISREG(info.st_mode)) {
      throw SafetensorsError(fmt::format("{}: cannot read: expected a regular file", path));
    }
    if (const std::string lfs = files::git_lfs_complaint_of(path); !lfs.empty()) {
      throw SafetensorsError(fmt::format("{}: {}", path, lfs));
    }
    std::string head(static_cast<size_t>(std::min<int64_t>(info.st_size, 8)), '\0');
    read_exactly(fd_, path_, 0, static_cast<int64_t>(head.size()), head.data());
    uint64_t length = 0;
    if (head.size() == 8) std::memcpy(&length, head.data(), 8);
    // A length beyond the file is refused by the parser without reading on.
    const auto left = static_cast<uint64_t>(info.st_size) - head.size();
    if (length <= left && length <= 100'000'000) {
      head.resize(8 + length);
      read_exactly(fd_, path_, 8, static_cast<int64_t>(length), head.data() + 8);
    }
    header_ = parse_safetensors_header(path_, head, info.st_size);
    for (const SafetensorsEntry& entry : header_.entries) by_name_[entry.name] = &entry;
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

SafetensorsReader::~SafetensorsReader() { ::close(fd_); }

const SafetensorsEntry* SafetensorsReader::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

void SafetensorsReader::read(const SafetensorsEntry& entry, void* out) const {
  read(entry, 0, entry.bytes(), out);
}

void SafetensorsReader::read(const SafetensorsEntry& entry, int64_t offset, int64_t bytes,
                             void* out) const {
  SMP_CHECK(offset >= 0 && bytes >= 0 && bytes <= entry.bytes() - offset);
  read_exactly(fd_, path_, header_.data_offset + entry.begin + offset, bytes, out);
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<SafetensorsEntry> entries)
    : file_(std::make_unique<files::AtomicFile>(path)), entries_(std::move(entries)) {
  const std::string header = make_safetensors_header(entries_, {{"format", "pt"}});
  data_offset_ = static_cast<int64_t>(header.size());
  written_bytes_.resize(entries_.size());
  file_->write_at(0, header.data(), data_offset_);
}

SafetensorsWriter::~SafetensorsWriter() = default;

void SafetensorsWriter::append(std::string_view name, const void* data, int64_t bytes) {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const auto& entry) { return entry.name == name; });
  SMP_CHECK(found != entries_.end());
  int64_t& written = written_bytes_[static_cast<size_t>(found - entries_.begin())];
  SMP_CHECK(bytes <= found->bytes() - written);
  file_->write_at(data_offset_ + found->begin + written, data, bytes);
  written += bytes;
}

void SafetensorsWriter::finish() {
  for (size_t i = 0; i < entries_.size(); ++i) {
    SMP_CHECK_EQ(written_bytes_[i], entries_[i].bytes());
  }
  file_->commit();
}

}  // namespace smp::safetensors
