#include "event_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <boost/crc.hpp>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <stdexcept>

namespace smp::tensorboard {
namespace {

constexpr std::string_view kPrefix = "events.out.tfevents.";

void add_little_endian(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}

// The seconds in the name of the last file; 0 = no file.
int64_t last_second(const std::string& folder) {
  int64_t last = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    int64_t second = 0;
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), second);
    last = std::max(last, second);
  }
  return last;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;
  crc.process_bytes(bytes.data(), bytes.size());
  return crc.checksum();
}

uint32_t masked_crc32c(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xa282ead8U;
}

std::string record_of(std::string_view bytes) {
  std::string record;
  add_little_endian(record, bytes.size(), 8);
  add_little_endian(record, masked_crc32c(record), 4);
  record += bytes;
  add_little_endian(record, masked_crc32c(bytes), 4);
  return record;
}

EventFile::EventFile(const std::string& folder, const std::string& host, int64_t now_s) {
  std::filesystem::create_directories(folder);
  const int64_t second = std::max(now_s, last_second(folder) + 1);
  path_ = fmt::format("{}/{}{:010}.{}.{}", folder, kPrefix, second, host, ::getpid());
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0)
    throw std::runtime_error(fmt::format("cannot write {}: {}", path_, std::strerror(errno)));
}

EventFile::~EventFile() { ::close(fd_); }

void EventFile::flush() {
  std::string_view rest = buffer_;
  while (!rest.empty()) {
    const ssize_t wrote = ::write(fd_, rest.data(), rest.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) {
      throw std::runtime_error(
          fmt::format("cannot write {}: {}", path_, std::strerror(wrote < 0 ? errno : ENOSPC)));
    }
    rest.remove_prefix(static_cast<size_t>(wrote));
  }
  buffer_.clear();
}

}  // namespace smp::tensorboard
