#include "published/run_cells.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>

namespace smp::published {
namespace {

constexpr double kLargestCount = 1 << 28;  // as in job files: counts that no run reaches

// "8,192" and "8_192" are 8192; a whole cell, or nothing.
std::optional<double> number_of(const std::string& word) {
  std::string digits;
  for (char c : word) {
    if (c != ',' && c != '_') digits += c;
  }
  if (digits.empty() ||
      !(std::isdigit(static_cast<unsigned char>(digits[0])) || digits[0] == '.')) {
    return std::nullopt;
  }
  if (digits.find_first_of("xXnN") != std::string::npos) return std::nullopt;
  char* end = nullptr;
  double value = std::strtod(digits.c_str(), &end);
  if (*end == 'k' && end[1] == '\0') value *= 1024;  // "8k" tokens
  if ((*end != '\0' && !(*end == 'k' && end[1] == '\0')) || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

}  // namespace

std::string trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return "";
  const size_t last = text.find_last_not_of(" \t\r\n");
  return std::string(text.substr(first, last - first + 1));
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::optional<double> leading_number(std::string_view text) {
  const std::string copy(text);
  char* end = nullptr;
  if (copy.empty() || !std::isdigit(static_cast<unsigned char>(copy[0]))) return std::nullopt;
  const double value = std::strtod(copy.c_str(), &end);
  return value;
}

RunCells::RunCells(const CsvTable& table, const CsvRow& row) : table_(table), row_(row) {
  std::string_view notes;
  for (size_t i = 0; i < table.columns.size(); ++i) {
    const std::string& name = table.columns[i];
    if (name == "notes") notes = row.cells[i];
    if (name == "notes" || name == "source" || name == "model" || name == "id") {
      everything_ += lower_case(row.cells[i]);
      everything_ += '\n';
    }
  }
  while (!notes.empty()) {
    const size_t end = std::min(notes.find(';'), notes.size());
    const std::string part = trimmed(notes.substr(0, end));
    notes.remove_prefix(std::min(end + 1, notes.size()));
    const size_t equals = part.find('=');
    if (equals == std::string::npos) continue;
    notes_.emplace_back(lower_case(trimmed(part.substr(0, equals))),
                        trimmed(part.substr(equals + 1)));
  }
}

std::string RunCells::text(std::string_view column) const {
  for (size_t i = 0; i < table_.columns.size(); ++i) {
    if (table_.columns[i] == column) return trimmed(row_.cells[i]);
  }
  return "";
}

std::string RunCells::word(std::string_view column) const { return lower_case(text(column)); }

void RunCells::not_understood(std::string_view column) {
  problem(fmt::format("{} '{}' is not understood", column, text(column)));
}

std::optional<double> RunCells::number(std::string_view column) {
  const std::string cell = word(column);
  if (cell.empty()) return std::nullopt;
  const std::optional<double> value = number_of(cell);
  if (!value) not_understood(column);
  return value;
}

std::optional<int64_t> RunCells::count(std::string_view column) {
  const std::optional<double> value = number(column);
  if (!value) return std::nullopt;
  if (*value != std::floor(*value) || *value > kLargestCount) {
    not_understood(column);
    return std::nullopt;
  }
  return static_cast<int64_t>(*value);
}

std::optional<int64_t> RunCells::degree(std::string_view column) {
  const std::optional<int64_t> value = count(column);
  if (value && *value == 0) {
    problem(fmt::format("{} is 0", column));
    return std::nullopt;
  }
  return value;
}

std::optional<bool> RunCells::yes_or_no(std::string_view column) {
  const std::string cell = word(column);
  if (cell.empty()) return std::nullopt;
  for (const char* yes : {"yes", "true", "1", "y", "on"}) {
    if (cell == yes) return true;
  }
  for (const char* no : {"no", "false", "0", "n", "off", "none"}) {
    if (cell == no) return false;
  }
  not_understood(column);
  return std::nullopt;
}

std::optional<std::string> RunCells::note(std::string_view key) const {
  for (const auto& [name, value] : notes_) {
    if (name == key) return value;
  }
  return std::nullopt;
}

std::optional<int64_t> RunCells::number_after(std::string_view words) const {
  const size_t at = everything_.find(words);
  if (at == std::string::npos) return std::nullopt;
  const auto value =
      leading_number(trimmed(std::string_view(everything_).substr(at + words.size())));
  if (!value) return std::nullopt;
  return static_cast<int64_t>(*value);
}

std::optional<int64_t> RunCells::note_count(std::string_view key) {
  const std::optional<std::string> text = note(key);
  if (!text) return std::nullopt;
  const std::optional<double> value = number_of(lower_case(*text));
  if (!value || *value != std::floor(*value) || *value > kLargestCount) {
    problem(fmt::format("notes: {}={} is not understood", key, *text));
    return std::nullopt;
  }
  return static_cast<int64_t>(*value);
}

}  // namespace smp::published
