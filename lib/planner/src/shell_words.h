#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "smp/plan/diagnostics.h"

// The words of a shell line or script, as far as a command's arguments need: comments, quotes, line
// ends with a backslash, and variables that the same text sets to plain values. Nothing is run.
// Pure; safe from any thread.
namespace smp {

struct ShellWord {
  std::string text;
  Place place;
  std::string unset;  // a variable in it that the text does not set; its name
};

std::vector<ShellWord> shell_words(std::string_view text, int source);

}  // namespace smp
