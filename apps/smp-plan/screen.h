#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "smp/planner/report/terminal.h"

namespace smp {

// How reports are to look on `file`: folded at its width and in colours where it is a terminal
// (NO_COLOR and TERM=dumb turn colours off), as they are where it is not. `width` > 0 folds there
// wherever it goes; `plain` turns both off.
report::Terminal terminal_of(std::FILE* file, bool plain, int64_t width);

// What is for people to read, whoever wrote the names in it.
void print(std::FILE* file, const std::string& text);
void show(std::FILE* file, const std::string& text, const report::Terminal& terminal);

}  // namespace smp
