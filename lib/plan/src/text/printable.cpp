#include "smp/plan/text/printable.h"

#include <fmt/format.h>

#include <cstdint>

namespace smp::text {
namespace {

struct Character {
  uint32_t code = 0;
  size_t bytes = 0;  // 0: no UTF-8
};

Character first_of(std::string_view text) {
  const auto byte = [&](size_t at) { return static_cast<unsigned char>(text[at]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t bytes = lead >= 0xF5   ? 0
                       : lead >= 0xF0 ? 4
                       : lead >= 0xE0 ? 3
                       : lead >= 0xC2 ? 2
                                      : 0;
  if (bytes == 0 || bytes > text.size()) return {};
  uint32_t code = lead & (0x7F >> bytes);
  for (size_t at = 1; at < bytes; ++at) {
    if ((byte(at) & 0xC0) != 0x80) return {};
    code = code << 6 | (byte(at) & 0x3F);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xD800 && code < 0xE000;
  if (code < kLeast[bytes] || code > 0x10FFFF || is_surrogate) return {};
  return {code, bytes};
}

bool is_control(uint32_t code) {
  const bool is_line = code == '\n' || code == '\t';
  return (code < 0x20 && !is_line) || (code >= 0x7F && code < 0xA0);
}

// Text after it would be shown in another order than it is written in, or on another line.
bool changes_direction(uint32_t code) {
  return code == 0x061C || code == 0x200E || code == 0x200F || (code >= 0x2028 && code <= 0x202E) ||
         (code >= 0x2066 && code <= 0x2069);
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Character one = first_of(text);
    const size_t bytes = one.bytes == 0 ? 1 : one.bytes;
    if (one.bytes == 0 || (is_control(one.code) && one.bytes == 1)) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
    } else if (is_control(one.code) || changes_direction(one.code)) {
      out += fmt::format("\\u{:04x}", one.code);
    } else {
      out.append(text.substr(0, bytes));
    }
    text.remove_prefix(bytes);
  }
  return out;
}

}  // namespace smp::text
