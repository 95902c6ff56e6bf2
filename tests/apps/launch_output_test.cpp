#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "launching.h"

// What smp-launch makes of the ranks' output, from outside.

using namespace smp;
namespace fs = std::filesystem;

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

TEST_CASE("lines stay whole under load, on the console and in the logs") {
  ScratchFolder folder;
  const std::string run = folder / "run";
  const ProgramEnd end = run_program(launch(
      {"-n", "4", "--show-ranks", "all", "--run-dir", run},
      "i=0; while [ $i -lt 3000 ]; do echo \"$RANK:$i:abcdefghijklmnopqrstuvwxyz\"; "
      "echo \"$RANK:$i:error\" >&2; i=$((i+1)); done; printf 'rank %s has no line end' $RANK"));
  CHECK(end.code == 0);
  std::map<std::string, int> next;
  std::istringstream lines(end.out);
  int whole = 0, last = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string rank = line.substr(1, 1);
    if (line == "[" + rank + "] rank " + rank + " has no line end") {
      ++last;
      continue;
    }
    REQUIRE(line == fmt::format("[{0}] {0}:{1}:abcdefghijklmnopqrstuvwxyz", rank, next[rank]++));
    ++whole;
  }
  CHECK(whole == 12000);
  CHECK(last == 4);
  CHECK(std::count(end.err.begin(), end.err.end(), '\n') == 12000);
  CHECK(contains(read_file(run + "/logs/rank-3.out"), "3:2999:abcdefghijklmnopqrstuvwxyz\n"));
  CHECK(contains(read_file(run + "/logs/rank-3.out"), "rank 3 has no line end"));
  CHECK(contains(read_file(run + "/logs/rank-2.err"), "2:0:error\n"));
}

TEST_CASE("--show-ranks chooses what reaches the console") {
  const std::string script = "echo $RANK";
  CHECK(run_program(launch({"-n", "4"}, script)).out == "[0] 0\n");
  CHECK(run_program(launch({"-n", "4", "--show-ranks", "none"}, script)).out == "");
  CHECK(sorted_lines(run_program(launch({"-n", "4", "--show-ranks", "1,2-3"}, script)).out) ==
        std::vector<std::string>{"[1] 1", "[2] 2", "[3] 3"});
}

TEST_CASE("where the reader of the console has gone, a job goes on only if logs hold its output") {
  ScratchFolder folder;
  const auto piped = [&](const std::string& options, const std::string& then) {
    return run_program(
        {"/bin/sh", "-c",
         fmt::format("{{ {} -n 1 {} -- sh -c 'i=0; while [ $i -lt 20000 ]; do echo line $i; "
                     "i=$((i+1)); done; {}'; echo $? > {}; }} | head -1",
                     SMP_LAUNCH, options, then, folder / "code")});
  };
  SUBCASE("logs") {
    const ProgramEnd end =
        piped("--run-dir " + (folder / "run"), "sleep 2; echo done > " + (folder / "done"));
    CHECK(end.out == "[0] line 0\n");
    CHECK(wait_for_lines(folder / "code", 1).front() == "0");
    CHECK(wait_for_lines(folder / "done", 1).front() == "done");
    CHECK(read_file(folder / "run/logs/rank-0.out").ends_with("line 19999\n"));
    CHECK(end.err ==
          "smp-launch: the reader of standard output has closed it; the logs hold the output of "
          "the ranks\n");
  }
  SUBCASE("no logs") {
    const ProgramEnd end = piped("", "sleep 300");
    CHECK(end.out == "[0] line 0\n");
    CHECK(wait_for_lines(folder / "code", 1).front() == "125");
    CHECK(without_times(end.err) ==
          "smp-launch: the reader of standard output has closed it, and no log holds the output of "
          "the ranks (see --run-dir)\nsmp-launch: 1 rank ended in T; exit code 125\n");
  }
}

TEST_CASE("output that a full disk did not take is told, and no success without a log") {
  ScratchFolder folder;
  const auto full = [&](const std::string& options, const std::string& to) {
    return run_program({"/bin/sh", "-c",
                        fmt::format("exec {} -n 1 {} -- sh -c 'echo one; sleep 1; echo two' {}",
                                    SMP_LAUNCH, options, to)});
  };
  const ProgramEnd lost = full("", "> /dev/full");
  CHECK(lost.code == 125);
  CHECK(
      contains(lost.err, "smp-launch: standard output cannot be written: No space left on device"));
  CHECK(contains(lost.err, "no log holds the output of the ranks"));
  const ProgramEnd kept = full("--run-dir " + (folder / "run"), "> /dev/full");
  CHECK(kept.code == 0);
  CHECK(kept.err ==
        "smp-launch: standard output cannot be written: No space left on device; the logs hold the "
        "output of the ranks\n");
  CHECK(read_file(folder / "run/logs/rank-0.out") == "one\ntwo\n");
  CHECK(full("", "> /dev/full 2>&1").code == 125);  // nobody can be told
}

TEST_CASE("control characters of a status, and of a rank's last words, do not reach the terminal") {
  ScratchFolder folder;
  const std::string run = folder / "run";
  CHECK(run_program(launch({"-n", "1", "--run-dir", run}, "true")).code == 0);
  std::string status = read_file(run + "/status.json");
  const std::string last = "\"last_event\": \"";
  status.insert(status.find(last) + last.size(), "\\u001b]0;gone\\u0007\\u009b2J");
  std::ofstream(run + "/status.json") << status;
  const ProgramEnd shown = run_program({SMP_LAUNCH, "--status", run});
  CHECK(shown.code == 0);
  CHECK(contains(shown.out, "\\x1b]0;gone\\x07\\u009b2J"));
  CHECK(!contains(shown.out, "\x1b"));
  const ProgramEnd failed = run_program(
      launch({"-n", "1", "--show-ranks", "none", "--run-dir", folder / "b"},
             "printf '{\"rank\": 0, \"kind\": \"own\", \"message\": \"\\\\u001b[2J\"}' > "
             "$SMP_ERROR_FILE; printf 'red \\033[31m\\n' >&2; exit 1"));
  CHECK(failed.code == 1);
  CHECK(contains(failed.err, "red \\x1b[31m\n"));
  CHECK(contains(failed.err, "\\x1b[2J\n"));
  CHECK(!contains(failed.err, "\x1b"));
  const ProgramEnd hosts = run_program({SMP_LAUNCH, "--hosts", "a\x1b[2J,b", "--", "true"});
  CHECK(!contains(hosts.err, "\x1b"));
}

TEST_CASE("what no log holds waits for a slow reader") {
  const ProgramEnd end =
      run_program({"/bin/sh", "-c",
                   fmt::format("{} -n 1 -- sh -c 'head -c 300000 /dev/zero | tr \"\\0\" x; echo' | "
                               "(sleep 4; wc -c)",
                               SMP_LAUNCH)});
  CHECK(std::stoi(end.out) > 300000);
  CHECK(end.err == "");
}

TEST_CASE("a log that cannot be written ends the job") {
  ScratchFolder folder;
  const std::string run = folder / "run";
  // The limit on file size stands for a full disk.
  const ProgramEnd end = run_program(
      {"/bin/sh", "-c",
       fmt::format(
           "ulimit -f 1; exec {} -n 2 --show-ranks none --run-dir {} -- sh -c 'head -c 100000 "
           "/dev/zero; sleep 300'",
           SMP_LAUNCH, run)});
  CHECK(end.code == 125);
  CHECK(contains(end.err, "smp-launch: cannot write log '" + run + "/logs/rank-"));
  CHECK(contains(end.err, ".out': File too large\n"));
}
