#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

// Serialization of numbers and texts, for messages between ranks on different hosts.
namespace smp::bootstrap {

struct Packer {
  std::string bytes;
  void add(uint64_t number) { bytes.append(reinterpret_cast<const char*>(&number), 8); }
  void add(const std::string& text) {
    add(uint64_t(text.size()));
    bytes += text;
  }
};

// Throws std::runtime_error at the end of the bytes.
class Unpacker {
 public:
  explicit Unpacker(const std::string& bytes) : bytes_(bytes) {}
  uint64_t number() {
    uint64_t number;
    memcpy(&number, take(8), 8);
    return number;
  }
  std::string text() {
    const uint64_t size = number();
    return {take(size), size};
  }

 private:
  const char* take(uint64_t size) {
    if (size > bytes_.size() - at_)
      throw std::runtime_error("a message of another rank is truncated");
    at_ += size;
    return bytes_.data() + at_ - size;
  }
  const std::string& bytes_;
  uint64_t at_ = 0;
};

}  // namespace smp::bootstrap
