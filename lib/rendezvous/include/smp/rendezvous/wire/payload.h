#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

// The bytes of messages between the processes of a job, on one host or several: numbers of 64 bits
// (little-endian), texts (length, bytes) and lists of texts (length, texts).
namespace smp::wire {

// A message breaks the protocol of its sender and receiver.
class ProtocolError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Appends numbers, texts and lists of texts to a payload.
class PayloadWriter {
 public:
  PayloadWriter& number(uint64_t value);
  PayloadWriter& text(std::string_view value);
  PayloadWriter& list(const std::vector<std::string>& values);
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// Reads them back in the same order, from bytes that outlive the reader. Throws ProtocolError if
// the payload is truncated.
class PayloadReader {
 public:
  explicit PayloadReader(std::string_view bytes) : bytes_(bytes) {}
  uint64_t number();
  int small_number() { return static_cast<int>(static_cast<int32_t>(number())); }
  std::string_view text();
  std::vector<std::string> list();
  bool done() const { return bytes_.empty(); }

 private:
  std::string_view bytes_;
};

}  // namespace smp::wire
