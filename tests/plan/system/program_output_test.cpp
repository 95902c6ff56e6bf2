#include "smp/plan/system/program_output.h"

#include <doctest/doctest.h>

#include <stdexcept>

using namespace smp::system;

TEST_CASE("output_of: what a program prints, and how it ends") {
  const std::chrono::seconds minute(60);
  const ProgramOutput ended =
      output_of({"/bin/sh", "-c", "echo out; echo err >&2; cat; exit 7"}, minute);
  CHECK(ended.code == 7);
  CHECK(ended.out == "out\n");
  CHECK(ended.err == "err\n");
  CHECK(output_of({"/bin/sh", "-c", "kill -9 $$"}, minute).code == 128 + 9);
  // More than a pipe holds, on both at once.
  const ProgramOutput much = output_of(
      {"/bin/sh", "-c", "head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2"}, minute);
  CHECK(much.out.size() == 300000);
  CHECK(much.err.size() == 300000);
}

TEST_CASE("output_of: a program that cannot start, and one that does not end") {
  CHECK_THROWS_WITH_AS(output_of({"/no/such"}, std::chrono::seconds(60)),
                       "/no/such: No such file or directory", std::runtime_error);
  // Its child holds the pipe, and is killed with it.
  CHECK_THROWS_WITH_AS(output_of({"/bin/sh", "-c", "sleep 1000; true"}, std::chrono::seconds(1)),
                       "/bin/sh: has not ended in 1 s", std::runtime_error);
}

TEST_CASE("program_beside: of the folder of this program") {
  CHECK(program_beside("smp_plan_tests").ends_with("/smp_plan_tests"));
  CHECK(program_beside("no-such-program").empty());
}
