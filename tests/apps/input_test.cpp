#include <doctest/doctest.h>

#include <fstream>

#include "program.h"

// smp-launch --stdin, from outside.

using namespace smp;

namespace {

ProgramEnd fed(const std::string& input, const std::string& options, const std::string& program) {
  return run_program({"/bin/sh", "-c",
                      input + " | " SMP_LAUNCH " --show-ranks all " + options + " -- " + program});
}

}  // namespace

TEST_CASE("standard input goes to the ranks that are to have it, to its end") {
  for (const char* where : {"-n 3", "--hosts a:2,b:1 --via local"}) {
    const std::string options = where;
    const ProgramEnd one = fed("printf 'a\\nb'", options + " --stdin 2", "cat");
    CHECK(one.code == 0);
    CHECK(one.out == "[2] a\n[2] b\n");
    const ProgramEnd all = fed("printf 'a\\nb'", options + " --stdin all", "wc -c");
    CHECK(sorted_lines(all.out) == std::vector<std::string>{"[0] 3", "[1] 3", "[2] 3"});
    CHECK(fed("echo a", options, "cat").out == "");
  }
}

TEST_CASE("more input than anybody keeps arrives whole, through a tree of agents too") {
  for (const char* where : {"-n 2", "--hosts h[1-5] --fan-out 2 --via local"}) {
    const ProgramEnd end = fed("head -c 6000000 /dev/zero", std::string(where) + " --stdin all",
                               "sh -c 'test $RANK = 1 && sleep 0.2; wc -c'");
    CHECK(end.code == 0);
    const std::vector<std::string> lines = sorted_lines(end.out);
    CHECK(lines.size() == (where[1] == 'n' ? 2 : 5));
    for (const std::string& line : lines) CHECK(line.ends_with("] 6000000"));
  }
}

TEST_CASE("ranks that do not read hold nobody up, and input that goes on for ever ends with them") {
  for (const char* where : {"-n 2", "--hosts a,b --via local"}) {
    const ProgramEnd end =
        fed("yes", std::string(where) + " --stdin all",
            "sh -c 'test $RANK = 1 && { exec <&-; sleep 0.1; echo closed; exit; }; "
            "read x; echo $x'");
    CHECK(end.code == 0);
    CHECK(sorted_lines(end.out) == std::vector<std::string>{"[0] y", "[1] closed"});
  }
}

TEST_CASE("what --stdin is not for") {
  const auto error_of = [](const std::vector<std::string>& words) {
    const ProgramEnd end = run_program(joined({SMP_LAUNCH, "--stdin"}, words));
    return end.err.substr(0, end.err.find('\n'));
  };
  CHECK(error_of({"0", "plan.yaml"}) ==
        "smp-launch: --stdin is for programs: a plan's ranks read their data from files");
  CHECK(error_of({"0", "-n", "1", "--max-restarts", "1", "--", "true"}) ==
        "smp-launch: --stdin and --max-restarts exclude each other: restarted ranks cannot read "
        "standard input again");
  CHECK(error_of({"3", "-n", "2", "--", "true"}).find("names rank 3, but the job has 2 ranks") !=
        std::string::npos);
}
