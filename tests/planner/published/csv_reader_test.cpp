#include "published/csv_reader.h"

#include <doctest/doctest.h>

#include <string>

#include "smp/plan/base/errors.h"

using namespace smp;
using namespace smp::published;

namespace {

std::string error_of(const std::string& text) {
  try {
    parse_csv("t.csv", text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing";
}

}  // namespace

TEST_CASE("csv: quotes, line ends, a byte order mark and empty lines") {
  const CsvTable table = parse_csv(
      "t.csv", "\xEF\xBB\xBFid,note\r\na,\"one, \"\"two\"\"\nthree\"\r\n\r\nb,\nc,last line");
  CHECK(table.columns == std::vector<std::string>{"id", "note"});
  REQUIRE(table.rows.size() == 3);
  CHECK(table.rows[0].cells[1] == "one, \"two\"\nthree");
  CHECK(table.rows[0].line == 2);
  CHECK(table.rows[1].cells == std::vector<std::string>{"b", ""});
  CHECK(table.rows[1].line == 5);
  CHECK(table.rows[2].cells[1] == "last line");
}

TEST_CASE("csv: what is broken is said with its place") {
  CHECK(error_of("") == "t.csv:1:1: no line of column names");
  CHECK(error_of("\n\n") == "t.csv:1:1: no line of column names");
  CHECK(error_of("a,b\n1\n") == "t.csv:2:1: 1 cell under 2 columns");
  CHECK(error_of("a,b\n1,2,3\n") == "t.csv:2:1: 3 cells under 2 columns");
  CHECK(error_of("a,a\n") == "t.csv:1:1: two columns are named 'a'");
  CHECK(error_of("a,,b\n") == "t.csv:1:1: column 2 has no name");
  CHECK(error_of("a,b\n1,\"two\n") == "t.csv:2:3: this quote is never closed");
  CHECK(error_of("a,b\n1,\"two\"x\n") == "t.csv:2:8: text after a closing quote");
  CHECK(error_of("a,b\n1,tw\"o\n") ==
        "t.csv:2:5: a quote inside a cell that does not begin with one");
  CHECK(error_of("a,b\n1,2\rc\n") == "t.csv:2:4: a carriage return without a line feed");
  CHECK(error_of(std::string("a,b\n1,\0\n", 8)) == "t.csv:2:3: a zero byte: the file is not text");
  CHECK(error_of("a,b\n\xC3\xA4\xC3\xB6,x\"\n") ==
        "t.csv:2:5: a quote inside a cell that does not begin with one");
}

TEST_CASE("csv: files that are none") {
  CHECK_THROWS_WITH_AS(load_csv("/nowhere.csv"), "/nowhere.csv: No such file or directory",
                       ConfigError);
  CHECK_THROWS_WITH_AS(load_csv("/tmp"), "/tmp: this is a folder; name the table of runs in it",
                       ConfigError);
}
