#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>

#include "program.h"

// What smp-launch makes of the ranks' output, from outside.

using namespace smp;
namespace fs = std::filesystem;

namespace {

// smp-launch, its options, then "-- sh -c script".
std::vector<std::string> launch(const std::vector<std::string>& options,
                                const std::string& script) {
  std::vector<std::string> words = {SMP_LAUNCH};
  words.insert(words.end(), options.begin(), options.end());
  for (const char* word : {"--", "/bin/sh", "-c", script.c_str()}) words.push_back(word);
  return words;
}

}  // namespace

TEST_CASE("64 ranks that say the same say it once") {
  const ProgramEnd end =
      run_program(launch({"-n", "64", "--show-ranks", "all", "--fold"},
                         "echo hello; test $RANK = 5 && echo only I; sleep 0.1; echo bye; exit 0"));
  CHECK(end.code == 0);
  // A busy machine may take longer to start them than a line waits.
  CHECK(std::count(end.out.begin(), end.out.end(), '\n') < 64);
  CHECK(end.out.find("[5] only I\n") != end.out.npos);
}

TEST_CASE("a prefix, names of logs and a log for each host, on agents") {
  ScratchFolder folder;
  const std::string run = folder / "run";
  const ProgramEnd end = run_program(
      launch({"--hosts", "a:2,b:1", "--via", "exec:exec $SMP_AGENT --agent", "--show-ranks", "last",
              "--prefix", "{host}/{rank:03}.{stream}: ", "--logs", "both", "--log-name",
              "{host}.{rank:02}.{stream}", "--run-dir", run},
             "echo $RANK; sleep 0.$RANK; echo e >&2"));
  CHECK(end.code == 0);
  CHECK(end.out == "b/002.out: 2\n");
  CHECK(end.err == "b/002.err: e\n");
  CHECK(read_file(run + "/logs/a.01.out") == "1\n");
  CHECK(read_file(run + "/logs/b.02.err") == "e\n");
  CHECK(read_file(run + "/logs/algo-2.log") == "b/002.out: 2\nb/002.err: e\n");
  CHECK(read_file(run + "/logs/algo-1.log").find("a/001.out: 1\n") != std::string::npos);
}

TEST_CASE("a log for each host alone, of a limited size") {
  ScratchFolder folder;
  const std::string run = folder / "run";
  const ProgramEnd end = run_program(launch(
      {"-n", "2", "--logs", "host", "--log-size", "64KiB", "--log-keep", "1", "--run-dir", run},
      "i=0; while [ $i -lt 4000 ]; do echo \"$RANK abcdefghijklmnopqrstuvwxyz\"; "
      "i=$((i+1)); done"));
  CHECK(end.code == 0);
  CHECK(!fs::exists(run + "/logs/rank-0.out"));
  CHECK(!fs::exists(run + "/logs/algo-1.log.2"));
  const std::string old = read_file(run + "/logs/algo-1.log.1");
  CHECK(old.size() <= 64 << 10);
  CHECK(old.size() > 63 << 10);
  CHECK(old.ends_with("xyz\n"));
  CHECK(read_file(run + "/logs/algo-1.log").starts_with("["));
}
