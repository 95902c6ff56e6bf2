#include "smp/planner/report/terminal.h"

#include <array>
#include <utility>

namespace smp::report {
namespace {

constexpr std::string_view kBold = "\x1b[1m";
constexpr std::string_view kEnd = "\x1b[0m";
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kVerdicts = {{
    {"chosen", "\x1b[32m"},
    {"fits", ""},
    {"tight", "\x1b[33m"},
    {"rejected", "\x1b[2m"},
}};

// Width on the terminal: bytes that start a UTF-8 character.
size_t width_of(std::string_view text) {
  size_t width = 0;
  for (const char c : text) width += (static_cast<unsigned char>(c) & 0xc0U) != 0x80U ? 1 : 0;
  return width;
}

// Column at which a folded line goes on.
size_t hanging_indent(std::string_view line, size_t columns) {
  const size_t first = line.find_first_not_of(' ');
  if (first == std::string_view::npos) return 0;
  size_t last_cell = first;
  for (size_t i = first; i + 2 < line.size() && i < columns; ++i) {
    if (line[i] == ' ' && line[i + 1] == ' ' && line[i + 2] != ' ') last_cell = i + 2;
  }
  // Too narrow a column to the right would be unreadable.
  return last_cell * 5 > columns * 3 ? first + 2 : last_cell > first ? last_cell : first + 2;
}

std::string fold_line(std::string_view line, size_t columns) {
  if (width_of(line) <= columns) return std::string(line);
  const size_t indent = hanging_indent(line, columns);
  std::string out;
  std::string row;
  size_t row_width = 0;
  bool row_has_word = false;
  const auto add = [&](std::string_view piece) {
    row += piece;
    row_width += width_of(piece);
  };
  size_t at = 0;
  while (at < line.size()) {
    const size_t word = line.find_first_not_of(' ', at);
    if (word == std::string_view::npos) break;
    size_t end = line.find(' ', word);
    if (end == std::string_view::npos) end = line.size();
    const std::string_view gap = line.substr(at, word - at);
    const std::string_view text = line.substr(word, end - word);
    if (row_has_word && row_width + gap.size() + width_of(text) > columns) {
      out += row + "\n";
      row.assign(indent, ' ');
      row_width = indent;
      add(text);
    } else {
      add(gap);
      add(text);
    }
    row_has_word = true;
    at = end;
  }
  return out + row;
}

std::string paint_line(std::string_view line) {
  if (line.empty()) return "";
  if (line[0] != ' ') {  // its label
    size_t end = line.find("  ");
    if (end == std::string_view::npos) end = line.find(' ');
    if (end == std::string_view::npos || end > 12) return std::string(line);
    return std::string(kBold) + std::string(line.substr(0, end)) + std::string(kEnd) +
           std::string(line.substr(end));
  }
  const size_t first = line.find_first_not_of(' ');
  for (const auto& [word, colour] : kVerdicts) {
    if (first == std::string_view::npos || colour.empty()) continue;
    if (line.substr(first, word.size()) == word &&
        line.substr(first + word.size(), 1) == std::string_view(" ")) {
      return std::string(line.substr(0, first)) + std::string(colour) +
             std::string(line.substr(first)) + std::string(kEnd);
    }
  }
  return std::string(line);
}

template <class F>
std::string each_line(std::string_view text, F&& change) {
  std::string out;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    out += change(text.substr(0, end));
    if (end == std::string_view::npos) break;
    out += '\n';
    text.remove_prefix(end + 1);
  }
  return out;
}

}  // namespace

std::string fold(std::string_view text, int64_t columns) {
  if (columns <= 0) return std::string(text);
  return each_line(
      text, [&](std::string_view line) { return fold_line(line, static_cast<size_t>(columns)); });
}

std::string paint(std::string_view text) { return each_line(text, paint_line); }

}  // namespace smp::report
