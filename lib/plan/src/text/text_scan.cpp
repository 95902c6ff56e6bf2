#include "text/text_scan.h"

#include <fmt/format.h>

namespace smp::text {

namespace {

struct Character {
  size_t length = 0;  // bytes; 0 = not UTF-8
  char32_t code = 0;
};

// Shortest form only, no surrogates, nothing above U+10FFFF (RFC 3629).
Character decode(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {1, lead};
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return {};
  char32_t code = lead & (0xFF >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    code = (code << 6) | (byte(i) & 0x3F);
  }
  constexpr char32_t kShortest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code < 0xE000;
  if (code < kShortest[length] || surrogate || code > 0x10FFFF) return {};
  return {length, code};
}

bool is_control(char32_t code) {
  if (code == '\t' || code == '\n' || code == '\r') return false;
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x2028 || code == 0x2029;
}

}  // namespace

bool scan_text(std::string_view text, int source, Diagnostics& diagnostics) {
  bool good = true;
  Place place{source, 1, 1};
  bool in_indentation = true;
  const auto report = [&](std::string message) {
    good = false;
    diagnostics.error(place, std::move(message));
  };
  for (size_t i = 0; i < text.size();) {
    const Character character = decode(text.substr(i));
    if (character.length == 0) {
      report(fmt::format("byte 0x{:02x} is not UTF-8 text; save the file as UTF-8",
                         static_cast<unsigned char>(text[i])));
      return false;
    }
    if (is_control(character.code)) {
      report(fmt::format("control character U+{:04X}; this is not a text file",
                         static_cast<unsigned>(character.code)));
      return false;
    }
    if (character.code == '\r' && (i + 1 == text.size() || text[i + 1] != '\n')) {
      report("a carriage return without a line feed; save the file with Unix line ends");
      return false;
    }
    if (character.code == '\t' && in_indentation) {
      report("a tab in the indentation; YAML wants blanks");
      in_indentation = false;
    }
    if (character.code != ' ') in_indentation = false;
    i += character.length;
    place.column += static_cast<int>(character.length);
    if (character.code == '\n') {
      in_indentation = true;
      place = {source, place.line + 1, 1};
    }
  }
  return good;
}

}  // namespace smp::text
