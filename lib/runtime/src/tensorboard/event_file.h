#pragma once

#include <cstdint>
#include <string>
#include <string_view>

// A file of records, as TensorBoard reads them (TFRecord): of each record the length (8 bytes,
// little endian), the length's masked CRC32C (4), the bytes, and their masked CRC32C (4). Used by
// one thread.
namespace smp::tensorboard {

// CRC-32C (Castagnoli): 0xe3069283 of "123456789".
uint32_t crc32c(std::string_view bytes);

// Rotated right by 15 bits, plus 0xa282ead8: a CRC of bytes that hold CRCs says little.
uint32_t masked_crc32c(std::string_view bytes);

std::string record_of(std::string_view bytes);  // as it stands in the file

// A new file of a folder, made where it is not there. Its name sorts behind those of the files that
// are there, which is the order in which TensorBoard reads them:
// events.out.tfevents.<seconds since the epoch, 10 digits>.<host>.<process>.
class EventFile {
 public:
  EventFile(const std::string& folder, const std::string& host, int64_t now_s);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  const std::string& path() const { return path_; }

  void append(std::string_view bytes) { buffer_ += record_of(bytes); }

  // What was appended is written, whole records alone. Throws std::runtime_error with path and
  // reason.
  void flush();

 private:
  std::string path_;
  std::string buffer_;
  int fd_ = -1;
};

}  // namespace smp::tensorboard
