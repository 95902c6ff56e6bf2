#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// Tables of published runs are comma-separated text (RFC 4180): a line of column names, then one
// row a line; a cell in quotes may hold commas, line ends and "" for a quote. LF and CRLF, with or
// without a byte order mark. Strict: what does not fit this is an error with file, line and column.
// Pure but for load_csv; any thread.
namespace smp::published {

struct CsvRow {
  int64_t line = 0;  // where it begins
  std::vector<std::string> cells;
};

struct CsvTable {
  std::string path;  // as errors name it
  std::vector<std::string> columns;
  std::vector<CsvRow> rows;
};

// Throws ConfigError: "runs.csv:3:17: ...".
CsvTable parse_csv(const std::string& path, std::string_view text);
// Throws ConfigError also when there is no such file, it is a folder or larger than 256 MiB.
CsvTable load_csv(const std::string& path);

}  // namespace smp::published
