#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "program.h"
#include "smp/plan/system/host_usage.h"
#include "smp/plan/text/json.h"

// What smp-launch samples of its ranks, from outside.

using namespace smp;
using namespace smp::system;
using namespace smp::text;
namespace fs = std::filesystem;

namespace {

// Samples in the run folder, of which one holds what is looked for.
template <typename Holds>
bool some(const std::string& run, Holds holds) {
  std::ifstream file(run + "/usage.jsonl");
  bool found = false;
  for (std::string line; std::getline(file, line);) found = holds(parse_usage(line)) || found;
  return found;
}

// Waits for such a sample.
template <typename Holds>
bool some_soon(const std::string& run, Holds holds) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < limit) {
    if (some(run, holds)) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return false;
}

}  // namespace

TEST_CASE("what ranks use is sampled: CPUs and memory with what they start, GPUs through NVML") {
  ScratchFolder folder;
  const std::string run = folder / "run", pid = folder / "pid";
  Program launched(
      {SMP_LAUNCH, "-n", "2", "--run-dir", run, "--usage-every", "500ms", "--", "sh", "-c",
       "test $RANK = 1 || exec sleep 300; echo $$ >" + pid +
           "; timeout 300 sh -c 'while :; do :; done'; exit 0"},
      {"LD_LIBRARY_PATH=" + fs::path(FAKE_NVML).parent_path().string(), "FAKE_NVML_PID=" + pid});
  CHECK(some_soon(run, [](const HostUsage& usage) {
    return usage.ranks.size() == 2 && usage.ranks[0].rank == 0 && usage.ranks[1].cpus > 0.02 &&
           usage.ranks[0].cpus < usage.ranks[1].cpus && usage.ranks[0].memory_bytes > 100'000 &&
           usage.memory_total_bytes > usage.memory_bytes && usage.memory_bytes > 1'000'000;
  }));
  // The shell, timeout, and the loop.
  CHECK(some_soon(run, [](const HostUsage& usage) {
    return usage.ranks.size() == 2 && usage.ranks[0].processes == 1 &&
           usage.ranks[1].processes == 3;
  }));
  CHECK(some_soon(run, [](const HostUsage& usage) {
    return usage.gpus == std::vector<GpuUsage>{
                             {0, 93, 60'000'000'000, 100'000'000'000, 412.5, {{1, 59'000'000'000}}},
                             {1, 0, 60'000'000'000, 100'000'000'000, 0, {}}};
  }));
  launched.signal(SIGTERM);
  CHECK(launched.wait().code == 143);
}

TEST_CASE("what a process had used before it was found is not charged to one sample") {
  ScratchFolder folder;
  const std::string run = folder / "run";
  // The loop begins right after a look for processes, of which there is one in three seconds.
  Program launched({SMP_LAUNCH, "-n", "1", "--run-dir", run, "--usage-every", "500ms", "--", "sh",
                    "-c", "sleep 0.7; timeout 300 sh -c 'while :; do :; done'; exit 0"});
  CHECK(some_soon(run, [](const HostUsage& usage) {
    return !usage.ranks.empty() && usage.ranks[0].processes == 3;
  }));
  launched.signal(SIGTERM);
  CHECK(launched.wait().code == 143);
  CHECK(!some(run, [](const HostUsage& usage) {
    return !usage.ranks.empty() && usage.ranks[0].cpus > 1.5;
  }));
}

TEST_CASE("agents send what their ranks use, under their host's name") {
  ScratchFolder folder;
  const std::string run = folder / "run";
  Program launched({SMP_LAUNCH, "--hosts", "a,b", "--via", "exec:exec $SMP_AGENT --agent",
                    "--run-dir", run, "--usage-every", "500ms", "--", "sleep", "300"});
  CHECK(some_soon(run, [](const HostUsage& usage) {
    return usage.host == "b" && usage.ranks.size() == 1 && usage.ranks[0].rank == 1;
  }));
  CHECK(some_soon(run, [](const HostUsage& usage) { return usage.host == "a"; }));
  launched.signal(SIGTERM);
  CHECK(launched.wait().code == 143);
}

TEST_CASE("no samples on request, and none without a folder for them") {
  ScratchFolder folder;
  const std::string run = folder / "run";
  CHECK(run_program({SMP_LAUNCH, "-n", "1", "--run-dir", run, "--usage-every", "off", "--", "true"})
            .code == 0);
  CHECK(!fs::exists(run + "/usage.jsonl"));
  const ProgramEnd without =
      run_program({SMP_LAUNCH, "-n", "1", "--usage-every", "1s", "--", "true"});
  CHECK(without.code == 2);
  CHECK(contains(without.err,
                 "--usage-every needs --run-dir: the samples are written to the run folder"));
  const ProgramEnd often =
      run_program({SMP_LAUNCH, "-n", "1", "--usage-every", "499ms", "--", "true"});
  CHECK(often.code == 2);
  CHECK(contains(often.err, "--usage-every 499ms: expected a time of at least 500ms, or off"));
}

TEST_CASE("the report says what each rank has used in all") {
  ScratchFolder folder;
  for (const std::vector<std::string>& where :
       {std::vector<std::string>{"-n", "1"}, {"--hosts", "a", "--via", "local"}}) {
    const std::string path = folder / "report.json";
    const ProgramEnd end = run_program(
        joined(joined({SMP_LAUNCH, "--report", path}, where),
               {"--", "sh", "-c",
                "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; x=$(head -c 20000000 /dev/zero "
                "| tr '\\0' x); exit 0"}));
    CHECK(end.code == 0);
    const auto rank = Json::parse(read_file(path)).at("ranks").at(0);
    CHECK(rank.at("cpu_s").get<double>() > 0.005);
    CHECK(rank.at("peak_memory_bytes").get<int64_t>() > 20'000'000);
  }
}

TEST_CASE("report: what it takes") {
  const auto refused = [](const std::vector<std::string>& words) {
    const ProgramEnd end = run_program(joined({SMP_LAUNCH, "report"}, words));
    CHECK(end.out == "");
    return fmt::format("{} {}", end.code, end.err.substr(0, end.err.find('\n')));
  };
  CHECK(refused({}) ==
        "2 smp-launch: report: the run folder is missing: give it, as in smp-launch report runs/a");
  CHECK(refused({"a", "b"}) ==
        "2 smp-launch: report: two run folders are given, 'a' and 'b': give one");
  CHECK(refused({"a", "--html"}) ==
        "2 smp-launch: report: --html needs a file, as in --html a.html");
  CHECK(refused({"a", "--json"}) ==
        "2 smp-launch: report: unknown option '--json': the only option is --html FILE");
  CHECK(refused({"/nowhere"}) == "3 smp-launch: '/nowhere' is not the folder of a run");
}
