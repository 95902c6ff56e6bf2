#pragma once

#include <fmt/format.h>

#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include "program.h"

// smp-launch from outside: real ranks, real signals. Ranks are small shell scripts.
namespace smp {

// smp-launch, its options, then "-- sh -c script".
inline std::vector<std::string> launch(const std::vector<std::string>& options,
                                       const std::string& script) {
  return joined(joined({SMP_LAUNCH}, options), {"--", "/bin/sh", "-c", script});
}

// For scripts of ranks: waits for so many lines in the file, or until a process is no more whose
// number stands in it and whose parent has taken note of its end.
inline std::string wait_for(const std::string& file, int lines) {
  return fmt::format("until [ \"$(cat {} 2>/dev/null | wc -l)\" -ge {} ]; do sleep 0.01; done; ",
                     file, lines);
}
inline std::string wait_for_end_of(const std::string& file) {
  return wait_for(file, 1) + "while kill -0 $(cat " + file + ") 2>/dev/null; do :; done; ";
}

// Text in which times are replaced: "12 ms" and "1.2 s" become "T".
inline std::string without_times(const std::string& text) {
  std::string result;
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && (std::isdigit(text[end]) != 0 || text[end] == '.')) ++end;
    const std::string_view rest = std::string_view(text).substr(end);
    const bool starts_word = i == 0 || text[i - 1] == ' ';
    if (end > i && starts_word && (rest.starts_with(" ms") || rest.starts_with(" s"))) {
      result += "T";
      i = end + (rest.starts_with(" ms") ? 3 : 2);
    } else {
      result += text[i++];
    }
  }
  return result;
}

}  // namespace smp
