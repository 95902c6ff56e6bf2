#include <doctest/doctest.h>

#include "program.h"
#include "smp/plan/text/json.h"

// smp-bench host in earnest. Nothing here depends on how fast the host is.

using namespace smp;
using text::Json;

TEST_CASE("smp-bench host prints what smp-plan takes for the rates of this host") {
  const ProgramEnd end = run_program({SMP_BENCH, "host"});
  CAPTURE(end.err);
  REQUIRE(end.code == 0);
  std::vector<int64_t> groups;
  Json engine;
  std::string lines = end.out;
  while (!lines.empty()) {
    const size_t newline = lines.find('\n');
    REQUIRE(newline != std::string::npos);
    const Json line = Json::parse(lines.substr(0, newline));
    lines.erase(0, newline + 1);
    if (line.contains("collectives")) groups.push_back(line["ranks"]);
    if (line.contains("steps")) engine = line;
  }
  REQUIRE(!groups.empty());
  CHECK(groups.front() == 2);
  REQUIRE(engine["steps"].size() == 3);
  for (const Json& steps : engine["steps"]) CHECK(steps["microbatch_s"].get<double>() > 0);
  CHECK(engine["matmul_flops_per_s"].get<double>() > 0);

  const ScratchFolder folder;
  const ProgramEnd plan = run_program({SMP_PLAN, SMP_SOURCE_DIR "/configs/jobs/quickstart.yaml"},
                                      {"SMP_NO_MEASURE=0", "XDG_CACHE_HOME=" + folder.path()});
  CHECK(plan.code == 0);
  CHECK(plan.err.starts_with("cluster local: measured this host in "));
  CHECK(contains(plan.err, "; stored in " + folder.path() + "/smp/host-"));
}

TEST_CASE("smp-worker --measure takes a number of CPUs") {
  const std::string worker =
      std::string(SMP_BENCH).substr(0, std::string(SMP_BENCH).rfind('/')) + "/smp-worker";
  const ProgramEnd end = run_program({worker, "--measure", "x"});
  CHECK(end.code == 3);
  CHECK(contains(end.err, "(measuring this host)"));
}
