#include "smp/planner/calibration/nccl_tests.h"

#include <doctest/doctest.h>

#include <sstream>

#include "smp/plan/base/errors.h"
#include "smp/plan/jobfile/cluster_catalog.h"

using namespace smp;
using namespace smp::calibration;
using namespace smp::jobfile;
using namespace smp::mesh;

namespace {

// Made up, in the layout of nccl-tests 2.13.
const std::string kHead =
    "# nThread 1 nGpus 1 minBytes 8 maxBytes 1024 step: 2(factor) warmup iters: 5 iters: 20\n"
    "#\n"
    "# Using devices\n"
    "#  Rank  0 Group  0 Pid  100 on     host-a device  0 [0x10] NVIDIA A100-SXM4-40GB\n"
    "#  Rank  1 Group  0 Pid  101 on     host-a device  1 [0x10] NVIDIA A100-SXM4-40GB\n"
    "#\n"
    "#                                      out-of-place                       in-place\n"
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time "
    "  algbw   busbw #wrong\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us) "
    " (GB/s)  (GB/s)\n";
const std::string kRows =
    "           0             0     float     sum      -1     0.20    0.00    0.00      0     0.20 "
    "   0.00    0.00      0\n"
    "     1048576        262144     float     sum      -1    50.00   20.97   20.97      0    49.00 "
    "  21.40   21.40      0\n"
    "     4194304       1048576     float     sum      -1   100.00   41.94   41.94      0    99.00 "
    "  42.37   42.37      0\n"
    "# Out of bounds values : 0 OK\n"
    "# Avg bus bandwidth    : 20.6\n";

std::string error_of(const std::string& text) {
  try {
    parse_nccl_tests("reduce.txt", text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("nccl-tests: sizes and times out of place, ranks and hosts from the list of devices") {
  const NcclTable table = parse_nccl_tests("reduce.txt", kHead + kRows);
  CHECK(table.ranks == 2);
  CHECK(table.hosts == 1);
  REQUIRE(table.points.size() == 2);
  CHECK(table.points[0].bytes == 1048576);
  CHECK(table.points[0].seconds == doctest::Approx(50e-6));
  CHECK(table.points[1].ranks == 2);
}

TEST_CASE(
    "nccl-tests: the marks of mpirun and srun are taken off, and other lines between are passed "
    "over") {
  const NcclTable plain = parse_nccl_tests("reduce.txt", kHead + kRows);
  for (const std::string mark : {"[1,0]<stdout>:", "[1,0]<stdout>: ",
                                 "[prterun-host-81@1,0]<stdout>:", "0: ", "00: ", " 0: ", "[0] "}) {
    INFO(mark);
    std::string text;
    std::istringstream lines(kHead + kRows);
    for (std::string line; std::getline(lines, line);) text += mark + line + "\n";
    text += "[1,1]<stderr>:a warning\nhost-a:100:100 [0] NCCL INFO Bootstrap : Using eth0\n";
    const NcclTable table = parse_nccl_tests("reduce.txt", text);
    CHECK(table.ranks == 2);
    CHECK(table.hosts == 1);
    REQUIRE(table.points.size() == plain.points.size());
    for (size_t i = 0; i < table.points.size(); ++i) {
      CHECK(table.points[i].bytes == plain.points[i].bytes);
      CHECK(table.points[i].seconds == plain.points[i].seconds);
    }
  }
  CHECK(error_of("[\n") ==
        "reduce.txt:1: '[' begins neither a comment (#) nor a measured size: keep the lines of "
        "all_reduce_perf alone, as UTF-8");
  CHECK(error_of("[1,0]<stdout>:hello\n") ==
        "reduce.txt:1: 'hello' begins neither a comment (#) nor a measured size: keep the lines of "
        "all_reduce_perf alone, as UTF-8");
}

TEST_CASE("nccl-tests: points go into the cluster file, its other lines stay") {
  const JobSource cluster = cluster_source("p4d.24xlarge");
  const std::vector<NcclTable> tables = {parse_nccl_tests("reduce.txt", kHead + kRows)};
  const std::string once = with_link_points(cluster, tables);
  CHECK(once == cluster.text +
                    "  intra_host_points:\n"
                    "    # nccl-tests, all_reduce_perf, out of place: reduce.txt\n"
                    "    - {ranks: 2, bytes: 1048576, seconds: 5e-05}\n"
                    "    - {ranks: 2, bytes: 4194304, seconds: 0.0001}\n");
  CHECK(with_link_points({"mine.yaml", once}, tables) == once);

  NcclTable four{
      "four", "four ranks", 4, 1, {{4, 1024, 1e-5}, {4, 1024, 2e-5, CollectiveOp::kAllToAll}}};
  const std::string both = with_link_points({"mine.yaml", once}, {four});
  CHECK(both == cluster.text +
                    "  intra_host_points:\n"
                    "    # measured before\n"
                    "    - {ranks: 2, bytes: 1048576, seconds: 5e-05}\n"
                    "    - {ranks: 2, bytes: 4194304, seconds: 0.0001}\n"
                    "    # four ranks\n"
                    "    - {ranks: 4, bytes: 1024, seconds: 1e-05}\n"
                    "    - {ranks: 4, bytes: 1024, seconds: 2e-05, op: all_to_all}\n");
  CHECK(read_cluster({"mine.yaml", both}).intra_host_points.back().op == CollectiveOp::kAllToAll);

  // Of as many ranks another call's points stay.
  const NcclTable again{"again", "four ranks again", 4, 1, {{4, 2048, 3e-5}}};
  CHECK(with_link_points({"mine.yaml", both}, {again}) ==
        cluster.text +
            "  intra_host_points:\n"
            "    # measured before\n"
            "    - {ranks: 2, bytes: 1048576, seconds: 5e-05}\n"
            "    - {ranks: 2, bytes: 4194304, seconds: 0.0001}\n"
            "    - {ranks: 4, bytes: 1024, seconds: 2e-05, op: all_to_all}\n"
            "    # four ranks again\n"
            "    - {ranks: 4, bytes: 2048, seconds: 3e-05}\n");
}

TEST_CASE("nccl-tests: measured constants take the place of those that a cluster file has") {
  const JobSource cluster{"mine.yaml",
                          "# mine\ncluster:\n  name: x\n  inter_host_latency_s: 1e-5  # a guess\n"
                          "  hosts: 2\n"};
  const std::string text =
      with_link_constants(cluster, {{"inter_host_latency_s", 6e-6, "measured"},
                                    {"inter_host_next_bytes_per_s", 3e9, "measured too"}});
  CHECK(text ==
        "# mine\ncluster:\n  name: x\n  hosts: 2\n"
        "  inter_host_latency_s: 6e-06  # measured\n"
        "  inter_host_next_bytes_per_s: 3e+09  # measured too\n");
  CHECK(read_cluster({"mine.yaml", text}).inter_host_next_bytes_per_s == 3e9);
}

TEST_CASE("nccl-tests: wrong results, and groups that were measured apart, are refused") {
  std::string wrong = kHead + kRows;
  wrong.replace(wrong.find("41.94      0"), 12, "41.94     12");
  CHECK(error_of(wrong) ==
        "reduce.txt:12: 12 results are wrong: repair the all-reduce of this machine first");
  std::string unchecked = kHead + kRows;
  unchecked.replace(unchecked.find("41.94      0"), 12, "41.94    N/A");
  CHECK(error_of(unchecked) == "no error");
  std::string groups = kHead + kRows;
  groups.replace(groups.find("Rank  1 Group  0"), 16, "Rank  1 Group  1");
  CHECK(error_of(groups) ==
        "reduce.txt:5: the ranks form several groups: measure one group of all ranks, without "
        "NCCL_TESTS_SPLIT");
  CHECK(error_of("\xEF\xBB\xBF# nThread 1\n" + kHead + kRows) ==
        "reduce.txt:1: '\xEF\xBB\xBF#' begins neither a comment (#) nor a measured size: keep the "
        "lines of all_reduce_perf alone, as UTF-8");
}

TEST_CASE("nccl-tests: what is not understood is an error with its line") {
  CHECK(error_of("1 2\n") == "reduce.txt:1: a measured size before the line of column names");
  CHECK(error_of("") ==
        "reduce.txt: no line '# Rank 0 ... on HOST device 0': the file is not an output of "
        "nccl-tests");
  CHECK(error_of(kHead) == "reduce.txt: no measured size");
  CHECK(error_of(kHead + "1048576 262144 float sum -1 50.00\n") ==
        "reduce.txt:10: 6 columns where 8 are needed");
  CHECK(error_of(kHead + "1M 262144 float sum -1 50.00 20.97 20.97\n") ==
        "reduce.txt:10: size '1M' is not a number of bytes");
  CHECK(error_of(kHead + "1048576 262144 float sum -1 nan 20.97 20.97\n") ==
        "reduce.txt:10: time 'nan' is not a number");
  CHECK(error_of(kHead + "1048576 262144 float sum -1 50.00 20.97 10.48\n") ==
        "reduce.txt:10: busbw 10.48 is not 2 x 1 / 2 of algbw 20.97: the file is not of "
        "all_reduce_perf");
  CHECK(error_of("# Collective test starting: all_gather_perf\n") ==
        "reduce.txt:1: this is all_gather_perf; the points of a cluster are of all_reduce_perf");
  CHECK(error_of("#  Rank  0 Group  0\n") ==
        "reduce.txt:1: a line of a rank must read '# Rank N ... on HOST device D'");
  const NcclTable table = parse_nccl_tests("reduce.txt", kHead + kRows);
  CHECK_THROWS_WITH_AS(
      with_link_points(cluster_source("p4d.24xlarge"), {table, table}),
      "reduce.txt: measures 2 ranks on one host, as reduce.txt does: leave one of the two out",
      ConfigError);
  CHECK_THROWS_WITH_AS(with_link_points({"x.yaml", "model: {}\n"}, {table}),
                       "x.yaml: section 'cluster' is missing", ConfigError);
}
