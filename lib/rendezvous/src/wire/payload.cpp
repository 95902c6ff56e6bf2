#include "smp/rendezvous/wire/payload.h"

namespace smp::wire {
namespace {

constexpr int kNumberBytes = 8;
constexpr uint64_t kMostTexts = 1 << 20;  // of one list

}  // namespace

PayloadWriter& PayloadWriter::number(uint64_t value) {
  for (int shift = 0; shift < 8 * kNumberBytes; shift += 8)
    bytes_.push_back(static_cast<char>(value >> shift));
  return *this;
}

PayloadWriter& PayloadWriter::text(std::string_view value) {
  number(value.size());
  bytes_.append(value);
  return *this;
}

PayloadWriter& PayloadWriter::list(const std::vector<std::string>& values) {
  number(values.size());
  for (const std::string& value : values) text(value);
  return *this;
}

uint64_t PayloadReader::number() {
  if (bytes_.size() < kNumberBytes) throw ProtocolError("a truncated message");
  uint64_t value = 0;
  for (int i = kNumberBytes - 1; i >= 0; --i)
    value = value << 8 | static_cast<unsigned char>(bytes_[static_cast<size_t>(i)]);
  bytes_.remove_prefix(kNumberBytes);
  return value;
}

std::string_view PayloadReader::text() {
  const uint64_t size = number();
  if (bytes_.size() < size) throw ProtocolError("a truncated message");
  const std::string_view value = bytes_.substr(0, size);
  bytes_.remove_prefix(size);
  return value;
}

std::vector<std::string> PayloadReader::list() {
  const uint64_t count = number();
  if (count > kMostTexts) throw ProtocolError("a message whose list is too long");
  std::vector<std::string> values;
  for (uint64_t i = 0; i < count; ++i) values.emplace_back(text());
  return values;
}

}  // namespace smp::wire
