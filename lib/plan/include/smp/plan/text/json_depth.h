#pragma once

#include <string_view>

namespace smp::text {

// The depth limit for JSON of other writers. Comparing and printing recurse, one call for each
// level. Text that nests deeper is refused before it is parsed.
inline constexpr int kMostJsonLevels = 64;

constexpr bool nests_too_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMostJsonLevels) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

}  // namespace smp::text
