#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "program.h"

using namespace smp;

TEST_CASE("smp-bench collectives: a table that smp-plan reads, and JSON of every call and type") {
  const ScratchFolder folder;
  const std::string json = folder / "out.json", table = folder / "table.txt";
  const ProgramEnd sums = run_program(
      {SMP_BENCH, "collectives", "-n", "2", "-b", "1Ki", "-e", "4Ki", "--samples", "1"});
  CAPTURE(sums.err);
  REQUIRE(sums.code == 0);
  std::ofstream(table) << sums.out;
  const ProgramEnd imported =
      run_program({SMP_PLAN, "import", "nccl-tests", table, "--cluster", "cpu-4", "-o", "-"});
  CAPTURE(imported.err);
  CHECK(imported.code == 0);
  CHECK(imported.out.find("{ranks: 2, bytes: 1024, seconds: ") != std::string::npos);
  CHECK(imported.out.find("{ranks: 2, bytes: 4096, seconds: ") != std::string::npos);

  const ProgramEnd all = run_program(
      {SMP_BENCH,
       "collectives",
       "-n",
       "3",
       "-b",
       "1000",
       "-e",
       "1000",
       "--samples",
       "1",
       "--ops",
       "all_reduce,all_gather,reduce_scatter,broadcast,reduce,gather,scatter,all_to_all,sendrecv",
       "--dtypes",
       "bf16,uint8",
       "--reduction",
       "average",
       "--dirty",
       "--private",
       "--json",
       json});
  CAPTURE(all.err);
  REQUIRE(all.code == 0);
  const auto document = nlohmann::json::parse(read_file(json));
  CHECK(document["ranks"] == 3);
  CHECK(document["hosts"] == 1);
  CHECK(document["memory"] == "private");
  CHECK(document["dirty"] == true);
  REQUIRE(document["results"].size() == 18);
  CHECK(document["results"][0]["op"] == "all_reduce");
  CHECK(document["results"][0]["reduction"] == "average");
  CHECK(document["results"][0]["bytes"] == 1000);
  CHECK(document["results"][3]["bytes"] == 999);  // all_gather cuts it in three
  for (const auto& row : document["results"]) {
    const auto& place = row[row.contains("out_of_place") ? "out_of_place" : "in_place"];
    CHECK(place["seconds"] > 0);
  }
}

TEST_CASE("smp-bench collectives under smp-launch, and --calibrate writes links") {
  const ScratchFolder folder;
  const std::string cluster = folder / "mine.yaml";
  const ProgramEnd end =
      run_program({SMP_LAUNCH, "-n", "2", "--", SMP_BENCH, "collectives", "-b", "16Ki", "-e",
                   "16Ki", "--samples", "1", "--calibrate", "--cluster", "cpu-4", "-o", cluster});
  CAPTURE(end.err);
  REQUIRE(end.code == 0);
  CHECK(read_file(cluster).find("{ranks: 2, bytes: 16384, seconds: ") != std::string::npos);
}

TEST_CASE("smp-bench counts hosts, not their names: links between hosts are no links inside one") {
  const ScratchFolder folder;
  const std::string script = "SMP_HOST_IDENTITY=h$RANK exec \"$0\" \"$@\"";
  const ProgramEnd end =
      run_program({SMP_LAUNCH, "-n", "2", "--", "/bin/sh", "-c", script, SMP_BENCH, "collectives",
                   "-b", "1Ki", "-e", "1Ki", "--samples", "1", "--json", folder / "out.json"});
  CAPTURE(end.err);
  REQUIRE(end.code == 0);
  CHECK(nlohmann::json::parse(read_file(folder / "out.json"))["hosts"] == 2);
}

TEST_CASE("smp-bench says what it cannot do") {
  const auto error_of = [](std::vector<std::string> words, int code) {
    words.insert(words.begin(), SMP_BENCH);
    const ProgramEnd end = run_program(words);
    CHECK(end.code == code);
    return end.err;
  };
  const std::string hint = "smp-bench --help shows examples\n";
  CHECK(error_of({}, 2) == "smp-bench: A subcommand is required\n" + hint);
  CHECK(error_of({"collectives", "-n", "2", "-b", "8", "-e", "4"}, 2) ==
        "smp-bench: --from: is at least 1 and at most --to\n" + hint);
  CHECK(error_of({"collectives", "-n", "2", "--calibrate"}, 2) ==
        "smp-bench: --calibrate requires --cluster\n" + hint);
  CHECK(error_of({"collectives"}, 3) ==
        "smp-bench: RANK is not set; smp-bench without -n is started by smp-launch, not by hand\n");
  CHECK(error_of({"collectives", "-n", "2", "--calibrate", "--cluster", "nowhere"}, 3)
            .starts_with("smp-bench: unknown cluster 'nowhere'"));
  CHECK(error_of({"completion", "tcsh"}, 2).ends_with(hint));
  CHECK(run_program({SMP_BENCH, "completion", "bash"}).out.find("--calibrate") !=
        std::string::npos);
}
