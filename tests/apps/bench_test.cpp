#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "bench/busy_time.h"
#include "program.h"
#include "smp/plan/text/json.h"

using namespace smp;
using namespace smp::text;

TEST_CASE("smp-bench collectives: a table that smp-plan reads, and JSON of every call and type") {
  const ScratchFolder folder;
  const std::string json = folder / "out.json", table = folder / "table.txt",
                    plot = folder / "plot.svg";
  const ProgramEnd sums = run_program(
      {SMP_BENCH, "collectives", "-n", "2", "-b", "1Ki", "-e", "4Ki", "--samples", "1"});
  CAPTURE(sums.err);
  REQUIRE(sums.code == 0);
  CHECK(sums.out.find(" 0\n") != std::string::npos);  // elements wrong
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
       "--plot",
       plot,
       "--json",
       json});
  CAPTURE(all.err);
  REQUIRE(all.code == 0);
  const std::string drawn = read_file(plot);
  CHECK(drawn.starts_with("<svg "));
  CHECK(drawn.find(">all_reduce bf16</text>") != std::string::npos);
  CHECK(drawn.find(">sendrecv uint8</text>") != std::string::npos);
  CHECK(drawn.ends_with("</svg>\n"));
  const auto document = Json::parse(read_file(json));
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
    CHECK(place["wrong"] == 0);
  }
}

TEST_CASE("smp-bench collectives --out-of-place-alone times what can be out of place, once") {
  const ProgramEnd end =
      run_program({SMP_BENCH, "collectives", "-n", "2", "--ops", "all_reduce,broadcast", "-b",
                   "1Ki", "-e", "1Ki", "--samples", "1", "--out-of-place-alone", "--json", "-"});
  CAPTURE(end.err);
  REQUIRE(end.code == 0);
  const auto results = Json::parse(end.out.substr(end.out.find('{')))["results"];
  REQUIRE(results.size() == 2);
  CHECK(results[0]["out_of_place"]["seconds"] > 0);
  CHECK(!results[0]["out_of_place"].contains("wrong"));
  CHECK(!results[0].contains("in_place"));
  CHECK(results[1]["in_place"]["seconds"] > 0);  // a broadcast cannot be otherwise
}

TEST_CASE("smp-bench collectives checks every reduction, in types that hold little too") {
  for (const char* const reduction : {"sum", "max", "min", "product", "average"}) {
    const ProgramEnd end =
        run_program({SMP_BENCH, "collectives", "-n", "4", "-b", "100Ki", "-e", "100Ki", "--samples",
                     "1", "--ops", "all_reduce,reduce_scatter,reduce", "--dtypes",
                     "fp32,fp64,fp16,bf16,int32,int64,uint8", "--reduction", reduction});
    CAPTURE(end.err);
    CHECK(end.code == 0);
  }
}

TEST_CASE("smp-bench collectives under smp-launch, and --calibrate writes links") {
  const ScratchFolder folder;
  const std::string cluster = folder / "mine.yaml";
  const ProgramEnd end = run_program({SMP_LAUNCH, "-n", "2", "--", SMP_BENCH, "collectives", "-b",
                                      "4", "-e", "16Ki", "-f", "4096", "--samples", "1",
                                      "--calibrate", "--cluster", "cpu-4", "-o", cluster});
  CAPTURE(end.err);
  REQUIRE(end.code == 0);
  const std::string written = read_file(cluster);
  CHECK(written.find("{ranks: 2, bytes: 16384, seconds: ") != std::string::npos);
  // One element is there for all_reduce and broadcast alone.
  CHECK(written.find("{ranks: 2, bytes: 4, seconds: ") != std::string::npos);
  CHECK(written.find("bytes: 0,") == std::string::npos);
  for (const char* const op : {"all_gather", "reduce_scatter", "broadcast", "all_to_all", "reduce",
                               "gather", "scatter", "send"})
    CHECK(written.find(std::string(", op: ") + op + "}\n") != std::string::npos);
}

TEST_CASE("smp-bench collectives --calibrate refuses sizes of which no call moves anything") {
  const ProgramEnd end = run_program({SMP_BENCH, "collectives", "-n", "2", "-b", "1", "-e", "1",
                                      "--samples", "1", "--calibrate", "--cluster", "cpu-4"});
  CHECK(end.code == 1);
  CHECK(end.err ==
        "smp-bench: rank 0: every size is smaller than one element per rank: raise --to\n");
}

TEST_CASE("smp-bench collectives --check predicts sizes that --calibrate keeps out of the file") {
  const ScratchFolder folder;
  const std::string cluster = folder / "mine.yaml";
  const ProgramEnd end =
      run_program({SMP_BENCH,     "collectives", "-n",        "2",        "-b", "8Ki",         "-e",
                   "32Ki",        "--samples",   "1",         "--rounds", "2",  "--sample-ms", "1",
                   "--calibrate", "--check",     "--cluster", "cpu-4",    "-o", cluster});
  CAPTURE(end.err);
  REQUIRE((end.code == 0 || end.code == 1));  // by what this machine does meanwhile
  const std::string written = read_file(cluster);
  for (const char* const bytes : {"8192", "16384", "32768"})
    CHECK(written.find(fmt::format("{{ranks: 2, bytes: {}, seconds: ", bytes)) !=
          std::string::npos);
  // Just beyond what goes one-shot; an all_gather's parts are beyond it at 32 KiB, which is the
  // end.
  const size_t beyond = written.find("bytes: 16512,");  // of all_reduce, and of reduce_scatter
  CHECK(beyond != std::string::npos);
  CHECK(written.rfind("bytes: 16512,") != beyond);
  CHECK(end.out.find("     N/A  ") != std::string::npos);  // results are not compared
  CHECK(written.find("bytes: 32896,") == std::string::npos);
  const std::string compared = end.out.substr(end.out.find("# Predicted from "));
  for (const char* const held : {"11776", "23552"}) {
    CHECK(written.find(held) == std::string::npos);
    for (const char* const op : {"all_reduce", "all_gather", "reduce_scatter", "broadcast"})
      CHECK(compared.find(fmt::format("{}        {} ", op, held)) != std::string::npos);
  }
  CHECK(compared.find("16384") == std::string::npos);
  const ProgramEnd none = run_program({SMP_BENCH, "collectives", "-n", "2", "-b", "1Ki", "-e",
                                       "1Ki", "--calibrate", "--check", "--cluster", "cpu-4"});
  CHECK(none.code == 2);
  CHECK(none.err.find(
            "--check: no size lies between the sizes from -b to -e: raise -f or the range") !=
        std::string::npos);
}

TEST_CASE("smp-bench collectives --predict sets the time model beside what was measured") {
  const ScratchFolder folder;
  const std::string cluster = folder / "slow.yaml";
  std::ofstream(cluster)
      << "cluster:\n  name: slow\n  intra_host_points: [{ranks: 2, bytes: 1024, seconds: 1, op: "
         "all_gather}]\n";
  const ProgramEnd end =
      run_program({SMP_BENCH, "collectives", "-n", "2", "--ops", "all_gather", "-b", "1Ki", "-e",
                   "1Ki", "--samples", "1", "--predict", cluster});
  CHECK(end.code == 1);
  CHECK(end.out.find("# Predicted from slow\n") != std::string::npos);
  CHECK(end.out.find("all_gather         1024     1000000.00 ") != std::string::npos);
  CHECK(end.out.find("# all_gather: median error ") != std::string::npos);
  CHECK(end.err.starts_with(
      "smp-bench: rank 0: the predictions for all_gather have a median error of "));
  CHECK(end.err.ends_with(" %, above the limit of 15 %\n"));
}

TEST_CASE("smp-bench counts hosts, not their names: links between hosts are no links inside one") {
  const ScratchFolder folder;
  const std::string script = "SMP_HOST_IDENTITY=h$RANK exec \"$0\" \"$@\"";
  const ProgramEnd end =
      run_program({SMP_LAUNCH, "-n", "2", "--", "/bin/sh", "-c", script, SMP_BENCH, "collectives",
                   "-b", "1Ki", "-e", "1Ki", "--samples", "1", "--json", folder / "out.json"});
  CAPTURE(end.err);
  REQUIRE(end.code == 0);
  CHECK(Json::parse(read_file(folder / "out.json"))["hosts"] == 2);
}

TEST_CASE("smp-bench --calibrate between hosts also says what their exchanges are chosen by") {
  const ScratchFolder folder;
  const std::string cluster = folder / "mine.yaml";
  const std::string script = "SMP_HOST_IDENTITY=h$RANK exec \"$0\" \"$@\"";
  const ProgramEnd end =
      run_program({SMP_LAUNCH, "-n",          "3",         "--",    "/bin/sh", "-c",   script,
                   SMP_BENCH,  "collectives", "-b",        "16Ki",  "-e",      "16Ki", "--samples",
                   "1",        "--calibrate", "--cluster", "cpu-4", "-o",      cluster});
  CAPTURE(end.err);
  REQUIRE(end.code == 0);
  const std::string written = read_file(cluster);
  CHECK(written.find("  inter_host_points:\n") != std::string::npos);
  CHECK(written.find("  inter_host_latency_s: ") != std::string::npos);
  CHECK(written.find("  # smp-bench collectives --calibrate, between 3 hosts\n") !=
        std::string::npos);
}

TEST_CASE("smp-bench exchanges says which way hosts would take, without a network") {
  const auto run = [](const std::string& variables, const std::string& words) {
    return run_program({"/bin/sh", "-c", variables + " exec \"$0\" exchanges " + words, SMP_BENCH});
  };
  const ProgramEnd end =
      run("SMP_FABRIC_COST=1e-05,1e-06,1e-09,5e-10", "--hosts 8 -b 8Ki -e 8Mi -f 1024");
  CAPTURE(end.err);
  CHECK(end.code == 0);
  CHECK(end.out ==
        "# SMP_FABRIC_COST=1e-05,1e-06,1e-09,5e-10\n"
        "# 8 hosts, 8 ranks\n"
        "#           call     size (B)     mesh (us)     ring (us) doubling (us)  taken\n"
        "         barrier            0         16.00         70.00         30.00  mesh\n"
        "      all_gather         8192         23.17         73.58         37.17  mesh\n"
        "      all_gather      8388608       7384.03       3768.02       7423.03  ring\n"
        "      all_reduce         8192         73.34         98.67         87.34  mesh\n"
        "# longer all_reduces and all other calls: mesh\n");
  // The same of a cluster file.
  const ScratchFolder folder;
  std::ofstream(folder / "mine.yaml") << "cluster:\n  name: mine\n  inter_host_latency_s: 1e-5\n"
                                         "  inter_host_message_s: 1e-6\n"
                                         "  inter_host_bytes_per_s: 1e9\n"
                                         "  inter_host_next_bytes_per_s: 2e9\n";
  CHECK(run("", "--hosts 8 -b 8Ki -e 8Mi -f 1024 --cluster " + (folder / "mine.yaml")).out ==
        end.out);
  CHECK(run("SMP_FABRIC_EXCHANGE=ring", "--hosts 8 -b 1Ki -e 1Ki").out.find("  mesh\n") ==
        std::string::npos);
  const ProgramEnd star = run("SMP_FABRIC_EXCHANGE=star", "--hosts 8");
  CHECK(star.code == 3);
  CHECK(star.err == "smp-bench: SMP_FABRIC_EXCHANGE=star: expected mesh, ring or doubling\n");
  CHECK(run("SMP_FABRIC_COST=1", "--hosts 8")
            .err.starts_with("smp-bench: SMP_FABRIC_COST: '1': expected four times"));
  CHECK(run_program({SMP_BENCH, "collectives", "-n", "2", "--network-cost"})
            .err.find(
                "--network-cost needs ranks on at least two hosts; all ranks are on one host\n") !=
        std::string::npos);
}

TEST_CASE("busy time counts what runs at once only once, and what two kinds share") {
  using namespace smp::bench;
  const auto ends = [](const std::vector<Span>& spans) {
    std::vector<int64_t> result;
    for (const Span& span : spans) result.insert(result.end(), {span.start_ns, span.end_ns});
    return result;
  };
  const auto kernels = union_of({{50, 60}, {0, 10}, {2, 4}, {8, 15}, {15, 20}, {30, 40}, {30, 35}});
  CHECK(ends(kernels) == std::vector<int64_t>{0, 20, 30, 40, 50, 60});
  CHECK(length_ns(kernels) == 40);
  const auto copies = union_of({{58, 70}, {18, 32}, {34, 36}, {40, 50}});
  CHECK(ends(intersection_of(kernels, copies)) ==
        std::vector<int64_t>{18, 20, 30, 32, 34, 36, 58, 60});
  CHECK(ends(intersection_of(copies, kernels)) == ends(intersection_of(kernels, copies)));
  CHECK(ends(intersection_of(kernels, kernels)) == ends(kernels));
  CHECK(intersection_of(kernels, {}).empty());
  CHECK(length_ns(union_of({})) == 0);
}

TEST_CASE("smp-bench ends when a rank is killed, and names it") {
  Program bench({SMP_BENCH, "collectives", "-n", "3", "-b", "4Ki", "-e", "4Ki", "--samples", "1000",
                 "--sample-ms", "10000"});
  const auto ranks = [&] {
    const std::string pid = std::to_string(bench.pid());
    std::istringstream children(read_file("/proc/" + pid + "/task/" + pid + "/children"));
    std::vector<pid_t> pids;
    for (pid_t child; children >> child;) pids.push_back(child);
    return pids;
  };
  while (ranks().size() < 3) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  kill(ranks()[1], SIGKILL);
  const ProgramEnd end = bench.wait();
  CHECK(end.code == 128 + SIGKILL);
  CHECK(end.err.find("smp-bench: rank 1 was killed by SIGKILL\n") != std::string::npos);
  CHECK(end.seconds < kSoonS);
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
  CHECK(error_of({"colectives", "-n", "2"}, 2) ==
        "smp-bench: unknown command 'colectives', did you mean 'collectives'?\n" + hint);
  CHECK(error_of({"nccl"}, 2) == "smp-bench: unknown command 'nccl'\n" + hint);
  CHECK(error_of({"collectives", "-n", "2", "--ops", "all_reduce,allgather"}, 2) ==
        "smp-bench: --ops: unknown 'allgather', did you mean 'all_gather'?\n" + hint);
  CHECK(error_of({"collectives", "-n", "2", "--dtypes", "fp8"}, 2) ==
        "smp-bench: --dtypes: unknown 'fp8'; expected one of bf16, fp16, fp32, fp64, int32, int64, "
        "uint8\n" +
            hint);
  CHECK(error_of({"collectives", "-n", "2", "--reduction", "xor"}, 2) ==
        "smp-bench: --reduction: unknown 'xor'; expected one of average, avg, max, min, prod, "
        "product, sum\n" +
            hint);
  for (const char* option : {"--json", "--plot"})
    CHECK(error_of({"collectives", "-n", "2", option, "/nowhere/out"}, 3) ==
          "smp-bench: /nowhere/out cannot be written\n");
  CHECK(error_of({"collectives", "-n", "2", "-b", "8", "-e", "4"}, 2) ==
        "smp-bench: --from: expected at least 1 and at most --to\n" + hint);
  CHECK(error_of({"exchanges", "--hosts", "4", "-e", "18446744073709551615"}, 2) ==
        "smp-bench: --to: expected at most 1Ti\n" + hint);
  CHECK(error_of({"collectives", "-n", "2", "--calibrate"}, 2) ==
        "smp-bench: --calibrate requires --cluster\n" + hint);
  CHECK(error_of(
            {"collectives", "-n", "2", "--calibrate", "--cluster", "cpu-4", "--ops", "all_gather"},
            2) == "smp-bench: --ops excludes --calibrate\n" + hint);
  CHECK(error_of({"collectives", "-n", "2", "--predict", "nowhere"}, 3)
            .starts_with("smp-bench: unknown cluster 'nowhere'"));
  CHECK(error_of({"collectives"}, 3) ==
        "smp-bench: RANK is not set; smp-bench without -n is started by smp-launch, not by hand\n");
  CHECK(error_of({"collectives", "-n", "2", "--calibrate", "--cluster", "nowhere"}, 3)
            .starts_with("smp-bench: unknown cluster 'nowhere'"));
  CHECK(error_of({"completion", "tcsh"}, 2).ends_with(hint));
  CHECK(run_program({SMP_BENCH, "completion", "bash"}).out.find("--calibrate") !=
        std::string::npos);
}
