#include "text/yaml_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "smp/plan/text/lower_case.h"

namespace smp::text {

namespace {

bool is_plain(std::string_view text) {
  constexpr std::array<std::string_view, 9> kWords = {"true", "false", "yes",  "no", "on",
                                                      "off",  "null",  "auto", "nan"};
  const std::string folded = lower_case(text);
  if (std::find(kWords.begin(), kWords.end(), folded) != kWords.end()) return false;
  const auto is_letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; };
  const bool starts_well =
      !text.empty() &&
      (is_letter(text[0]) || text[0] == '/' || text[0] == '_' ||
       (text[0] == '.' && text.size() > 1 && (is_letter(text[1]) || text[1] == '/') &&
        folded != ".inf" && folded != ".nan"));
  return starts_well && std::all_of(text.begin(), text.end(), [&](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '/' ||
                  c == '-' || c == '+';
         });
}

}  // namespace

std::string yaml_text(std::string_view text) {
  if (is_plain(text)) return std::string(text);
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace smp::text
