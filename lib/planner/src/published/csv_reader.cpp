#include "published/csv_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "smp/plan/base/errors.h"
#include "smp/plan/files/file_kind.h"
#include "smp/plan/files/text_file.h"

namespace smp::published {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

class Reader {
 public:
  Reader(const std::string& path, std::string_view text) : path_(path), text_(text) {
    if (text_.substr(0, kByteOrderMark.size()) == kByteOrderMark) {
      text_.remove_prefix(kByteOrderMark.size());
    }
  }

  std::optional<CsvRow> next_row() {
    skip_empty_lines();
    if (at_end()) return std::nullopt;
    CsvRow row{line_, {}};
    for (;;) {
      row.cells.push_back(peek() == '"' ? quoted_cell() : plain_cell());
      if (at_end()) return row;
      if (peek() == ',') {
        step();
        if (at_end()) {
          row.cells.emplace_back();
          return row;
        }
        continue;
      }
      end_line();
      return row;
    }
  }

  [[noreturn]] void refuse(int64_t line, int64_t column, const std::string& problem) const {
    throw ConfigError(fmt::format("{}:{}:{}: {}", path_, line, column, problem));
  }

 private:
  bool at_end() const { return at_ == text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }

  void step() {
    if (text_[at_] == '\0') refuse(line_, column_, "a zero byte: the file is not text");
    if (text_[at_] == '\n') {
      ++line_;
      column_ = 1;
    } else if ((static_cast<unsigned char>(text_[at_]) & 0xC0) != 0x80) {  // of UTF-8, the first
      ++column_;
    }
    ++at_;
  }

  void end_line() {
    if (peek() == '\r') {
      if (at_ + 1 >= text_.size() || text_[at_ + 1] != '\n') {
        refuse(line_, column_, "a carriage return without a line feed");
      }
      step();
    }
    step();
  }

  void skip_empty_lines() {
    while (!at_end() && (peek() == '\n' || peek() == '\r')) end_line();
  }

  std::string plain_cell() {
    std::string cell;
    while (!at_end() && peek() != ',' && peek() != '\n' && peek() != '\r') {
      if (peek() == '"') {
        refuse(line_, column_, "a quote inside a cell that does not begin with one");
      }
      cell += peek();
      step();
    }
    return cell;
  }

  std::string quoted_cell() {
    const int64_t line = line_;
    const int64_t column = column_;
    std::string cell;
    step();
    for (;;) {
      if (at_end()) refuse(line, column, "this quote is never closed");
      const char c = peek();
      step();
      if (c != '"') {
        cell += c;
      } else if (peek() == '"') {
        cell += c;
        step();
      } else {
        break;
      }
    }
    if (!at_end() && peek() != ',' && peek() != '\n' && peek() != '\r') {
      refuse(line_, column_, "text after a closing quote");
    }
    return cell;
  }

  const std::string& path_;
  std::string_view text_;
  size_t at_ = 0;
  int64_t line_ = 1;
  int64_t column_ = 1;
};

}  // namespace

CsvTable parse_csv(const std::string& path, std::string_view text) {
  Reader reader(path, text);
  CsvTable table{path, {}, {}};
  std::optional<CsvRow> head = reader.next_row();
  if (!head) throw ConfigError(fmt::format("{}:1:1: no line of column names", path));
  for (size_t i = 0; i < head->cells.size(); ++i) {
    const std::string& name = head->cells[i];
    if (name.empty()) {
      reader.refuse(head->line, 1, fmt::format("column {} has no name", i + 1));
    }
    if (std::count(table.columns.begin(), table.columns.end(), name) > 0) {
      reader.refuse(head->line, 1, fmt::format("two columns are named '{}'", name));
    }
    table.columns.push_back(name);
  }
  while (std::optional<CsvRow> row = reader.next_row()) {
    if (row->cells.size() != table.columns.size()) {
      reader.refuse(row->line, 1,
                    fmt::format("{} cell{} under {} columns", row->cells.size(),
                                row->cells.size() == 1 ? "" : "s", table.columns.size()));
    }
    table.rows.push_back(std::move(*row));
  }
  return table;
}

CsvTable load_csv(const std::string& path) {
  const std::string text = files::read_text_file(path, "table of runs");
  if (files::kind_of_text(text) == files::FileKind::kPlan) {
    throw ConfigError(
        fmt::format("{0}: this is a plan, not a table of runs: smp-plan check {0} proves it, "
                    "smp-plan compare compares it with its run",
                    path));
  }
  return parse_csv(path, text);
}

}  // namespace smp::published
