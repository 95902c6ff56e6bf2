#include "smp/plan/text/comment_lines.h"

#include <algorithm>

namespace smp::text {

std::string comment_lines(std::string_view text, std::string_view first, std::string_view next) {
  constexpr size_t kWidth = 96;
  std::string out, line(first);
  bool has_words = false;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    if (has_words && line.size() + 1 + end > kWidth) {
      out += line + "\n";
      line = next;
    }
    line += ' ';
    for (const char c : text.substr(0, end)) line += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
    has_words = true;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out + line + "\n";
}

}  // namespace smp::text
