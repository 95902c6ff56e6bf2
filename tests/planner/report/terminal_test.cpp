#include "smp/planner/report/terminal.h"

#include <doctest/doctest.h>

using smp::report::fold;
using smp::report::paint;

TEST_CASE("lines that are too long go on below their last cell") {
  CHECK(fold("why      the smallest shard degree that fits, of all\nshort\n", 30) ==
        "why      the smallest shard\n         degree that fits, of\n         all\nshort\n");
  CHECK(fold("  rejected  t 1   p 1   needs much more memory than there is", 40) ==
        "  rejected  t 1   p 1   needs much more\n                        memory than\n            "
        "            there is");
  CHECK(fold("a plain line of several words that is long", 20) ==
        "a plain line of\n  several words that\n  is long");
}

TEST_CASE("nothing is folded where no width is known, and no word is cut") {
  CHECK(fold("one two three four", 0) == "one two three four");
  CHECK(fold("/a/very/long/path/without/any/space in it", 10) ==
        "/a/very/long/path/without/any/space\n  in it");
  CHECK(fold("", 10).empty());
  CHECK(fold("\n\n", 10) == "\n\n");
}

TEST_CASE("a character of several bytes is one column wide") {
  CHECK(fold("ééé ééé", 7) == "ééé ééé");
  CHECK(fold("ééé éééé", 7) == "ééé\n  éééé");
}

TEST_CASE("labels are bold and verdicts have their colours") {
  CHECK(paint("layout   p 1") == "\x1b[1mlayout\x1b[0m   p 1");
  CHECK(paint("  chosen    t 1") == "  \x1b[32mchosen    t 1\x1b[0m");
  CHECK(paint("  rejected  t 2") == "  \x1b[2mrejected  t 2\x1b[0m");
  CHECK(paint("  chosenly t 1") == "  chosenly t 1");
  CHECK(paint("    weights   1 MiB") == "    weights   1 MiB");
}
