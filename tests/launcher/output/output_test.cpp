#include "smp/launcher/process/output.h"

#include <doctest/doctest.h>

using namespace smp;
using namespace smp::process;
using Clock = LineSplitter::Clock;

namespace {

// What the console shows of these pieces, each read at its second.
std::string shown(const std::vector<std::string>& pieces, double seconds_between = 0) {
  LineSplitter splitter("[7] ");
  std::string lines;
  auto now = Clock::time_point{} + std::chrono::hours(1);
  for (const std::string& piece : pieces) {
    splitter.feed(piece, now, lines);
    now += std::chrono::milliseconds(static_cast<int64_t>(seconds_between * 1000));
  }
  splitter.flush(lines);
  return lines;
}

}  // namespace

TEST_CASE("lines are shown whole, each behind its prefix") {
  CHECK(shown({"a\nb\n"}) == "[7] a\n[7] b\n");
  CHECK(shown({"a", "b", "\nc"}) == "[7] ab\n[7] c\n");
  CHECK(shown({"\n\n"}) == "[7] \n[7] \n");
  CHECK(shown({""}) == "");
}

TEST_CASE("a carriage return overwrites the line: before a line end it is none") {
  CHECK(shown({"a\r\nb\r", "\n"}) == "[7] a\n[7] b\n");
  CHECK(shown({"1%\r", "2%\r", "3%\n"}) == "[7] 1%\n[7] 3%\n");
  CHECK(shown({"1%\r", "2%\r", "3%\r", "4%\r", "done\n"}, 0.4) == "[7] 1%\n[7] 4%\n[7] done\n");
  CHECK(shown({"\rx\r"}) == "[7] x\n");
}

TEST_CASE("a line without end is cut, but no character is") {
  const size_t limit = LineSplitter::kLongestLine;
  const std::string line(limit - 1, 'a');
  CHECK(shown({line + "\xc3\xa4z\n"}) == "[7] " + line + "\n[7] \xc3\xa4z\n");
  CHECK(shown({line, "bc"}) == "[7] " + line + "b\n[7] c\n");
  CHECK(shown({std::string(3 * limit, '\x80')}).size() == 3 * limit + 3 * 5);
}

TEST_CASE("the tail keeps the last lines, as a terminal would show them") {
  Tail tail;
  CHECK(tail.last_lines(3).empty());
  tail.feed("a\nb\n1%\r2%\nc\r\n");
  CHECK(tail.last_lines(3) == std::vector<std::string>{"b", "2%", "c"});
  tail.feed("open end");
  CHECK(tail.last_lines(2) == std::vector<std::string>{"c", "open end"});
  CHECK(tail.last_lines(99).size() == 5);
  for (int i = 0; i < 100'000; ++i) tail.feed("line " + std::to_string(i) + "\n");
  CHECK(tail.last_lines(2) == std::vector<std::string>{"line 99998", "line 99999"});
  tail.feed(std::string(5000, 'x'));
  CHECK(tail.last_lines(1).front() == std::string(1000, 'x') + "...");
}

TEST_CASE("on a terminal a line that overwrites itself does so there") {
  LineSplitter splitter("[0] ", true);
  const Clock::time_point start = Clock::now();
  std::string lines;
  splitter.feed("\rstep 1", start, lines);
  splitter.feed("\rstep 2", start, lines);
  CHECK(lines == "\r\x1b[K[0] step 1");
  lines.clear();
  splitter.feed("\rstep 3", start + std::chrono::milliseconds(10), lines);
  CHECK(lines == "");  // too soon
  splitter.feed("\rstep 4\n", start + std::chrono::milliseconds(20), lines);
  CHECK(lines == "\r\x1b[K[0] step 4\n");
  lines.clear();
  splitter.feed("whole\n", start, lines);
  CHECK(lines == "[0] whole\n");
}
