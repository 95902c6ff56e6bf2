#pragma once

#include <string>
#include <string_view>

namespace smp::text {

// The text with A to Z as a to z, for comparisons that ignore case. Pure; any thread.
inline std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

}  // namespace smp::text
