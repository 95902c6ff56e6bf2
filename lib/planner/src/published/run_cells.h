#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "published/csv_reader.h"
#include "smp/plan/text/lower_case.h"

namespace smp::published {

// The cells of one published run by column name, and what was understood of them: `problems` say
// why the run cannot be expressed, each naming its cell; `assumptions` say what was taken where a
// cell is empty. Cells are read liberally (case, spaces, "8,192"); a cell that is not understood is
// a problem, never a default. For one thread.
class RunCells {
 public:
  RunCells(const CsvTable& table, const CsvRow& row);

  // The cell in lower case without spaces around it; empty when the table has no such column.
  std::string word(std::string_view column) const;
  std::string text(std::string_view column) const;  // as written
  bool has(std::string_view column) const { return !word(column).empty(); }

  std::optional<double> number(std::string_view column);   // >= 0
  std::optional<int64_t> count(std::string_view column);   // >= 0, whole
  std::optional<int64_t> degree(std::string_view column);  // >= 1, whole
  std::optional<bool> yes_or_no(std::string_view column);

  // The value of a flag of the notes: "num-experts=8; ..." ; "true" flags are "True".
  std::optional<std::string> note(std::string_view key) const;
  std::optional<int64_t> note_count(std::string_view key);
  // The whole number that stands behind `words` in the notes ("batch size per DP 36").
  std::optional<int64_t> number_after(std::string_view words) const;
  bool has_note(std::string_view key) const { return note(key).has_value(); }
  // Whether source, notes, model or id contain `part`, whatever its case.
  bool mentions(std::string_view part) const { return everything_.find(part) != std::string::npos; }

  void problem(std::string text) { problems.push_back(std::move(text)); }
  void assume(std::string text) { assumptions.push_back(std::move(text)); }
  void not_understood(std::string_view column);

  std::vector<std::string> problems;
  std::vector<std::string> assumptions;

 private:
  const CsvTable& table_;
  const CsvRow& row_;
  std::vector<std::pair<std::string, std::string>> notes_;
  std::string everything_;
};

using text::lower_case;
std::string trimmed(std::string_view text);
bool contains(std::string_view text, std::string_view part);
// The number at the beginning of `text` with commas and k, m, b behind it read; nothing if none.
std::optional<double> leading_number(std::string_view text);

}  // namespace smp::published
