#pragma once

#include <cstdint>
#include <string>
#include <string_view>

// A file of records in TensorBoard's format (TFRecord). A record is the length (8 bytes, little
// endian), the length's masked CRC32C (4 bytes), the payload, and its masked CRC32C (4 bytes). Used
// by one thread.
namespace smp::tensorboard {

// CRC-32C (Castagnoli). crc32c("123456789") is 0xe3069283.
uint32_t crc32c(std::string_view bytes);

// The CRC rotated right by 15 bits, plus 0xa282ead8. The mask is needed because a CRC of bytes that
// contain CRCs detects few errors.
uint32_t masked_crc32c(std::string_view bytes);

std::string record_of(std::string_view bytes);  // the bytes of a record in the file

// Creates a file, and its folder if needed. TensorBoard reads files in the order of their names, so
// the new name sorts after all existing ones:
// events.out.tfevents.<seconds since the epoch, 10 digits>.<host>.<process>.
class EventFile {
 public:
  EventFile(const std::string& folder, const std::string& host, int64_t now_s);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  const std::string& path() const { return path_; }

  void append(std::string_view bytes) { buffer_ += record_of(bytes); }

  // Writes all appended records. Throws std::runtime_error with path and reason.
  void flush();

 private:
  std::string path_;
  std::string buffer_;
  int fd_ = -1;
};

}  // namespace smp::tensorboard
