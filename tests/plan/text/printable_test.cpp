#include "smp/plan/text/printable.h"

#include <doctest/doctest.h>

using namespace smp;
using namespace smp::text;

TEST_CASE("text of others is shown without what would steer the terminal") {
  CHECK(printable("a line\n\ttab, \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80\n") ==
        "a line\n\ttab, \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80\n");
  CHECK(printable("\x1b[2J\x07\r\x7f") == "\\x1b[2J\\x07\\x0d\\x7f");
  CHECK(printable(std::string_view("a\0b", 3)) == "a\\x00b");
  CHECK(printable("\xc2\x9b"
                  "2J") == "\\u009b2J");  // CSI in one character
  CHECK(printable("\x9b"
                  "2J\xff") == "\\x9b2J\\xff");  // no UTF-8
  CHECK(printable("\xe2\x80\xae"
                  "txt") == "\\u202etxt");                // right to left from here on
  CHECK(printable("\xe2\x80\xa8") == "\\u2028");          // another line
  CHECK(printable("\xc0\x9b") == "\\xc0\\x9b");           // an escape in two bytes
  CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");  // half of a pair
  CHECK(printable("\xf4\x90\x80\x80\xe2\x82") == "\\xf4\\x90\\x80\\x80\\xe2\\x82");
  CHECK(printable("") == "");
}
