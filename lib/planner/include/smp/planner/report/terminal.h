#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace smp::report {

// How a report is shown to a person.
struct Terminal {
  int64_t columns = 80;  // longer lines are folded; 0 = never
  bool colour = false;
};

// Folds lines that are longer than the terminal is wide, between words. What goes on starts below
// the line's last cell (cells are two or more spaces apart), so that tables and labelled lines stay
// readable. A word longer than the rest of the line is left whole. Pure; any thread.
std::string fold(std::string_view text, int64_t columns);

// Colours of a report, by the words that stand at their places: the label of a line (bold), and the
// verdicts "chosen" (green), "fits", "tight" (yellow), "rejected" (dim). Applied after fold().
std::string paint(std::string_view text);

}  // namespace smp::report
