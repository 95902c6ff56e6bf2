#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "program.h"
#include "smp/plan/text/json.h"

// Restarts and hangs of programs that are not ours, from outside.

using namespace smp;
using namespace smp::text;

namespace {

const std::vector<std::string> kTwoHosts = {"--hosts", "a:1,b:1", "--via",
                                            "exec:exec $SMP_AGENT --agent"};

std::vector<std::string> launch(std::vector<std::string> words,
                                const std::vector<std::string>& more,
                                const std::vector<std::string>& program) {
  words.insert(words.begin(), SMP_LAUNCH);
  words.insert(words.end(), more.begin(), more.end());
  words.push_back("--");
  words.insert(words.end(), program.begin(), program.end());
  return words;
}

std::vector<std::string> shell(const std::string& script) { return {"/bin/sh", "-c", script}; }

}  // namespace

TEST_CASE("a program is started again, knows it, and each start's cause is told") {
  ScratchFolder folder;
  const std::string report = folder / "report.json";
  const ProgramEnd end = run_program(launch(
      {"-n", "2", "--max-restarts", "3", "--restart-pause", "10ms", "--report", report}, {},
      shell("echo $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS; test $RANK = 1 || "
            "exec sleep 0.2; test $TORCHELASTIC_RESTART_COUNT = 2 && exit 0; exit "
            "$((5 + TORCHELASTIC_RESTART_COUNT))")));
  CHECK(end.code == 0);
  CHECK(end.out == "[0] 0 of 3\n[0] 1 of 3\n[0] 2 of 3\n");
  CHECK(contains(end.err, "smp-launch: restart 1 of 3, from the beginning\n"));
  CHECK(contains(end.err, ": rank 1 ended with exit code 5, "));
  CHECK(contains(end.err, "smp-launch: start 2 failed after "));
  const Json json = Json::parse(read_file(report));
  CHECK(json.at("end") == "success");
  REQUIRE(json.at("starts").size() == 3);
  CHECK(json.at("starts")[1].at("exit_code") == 6);
  CHECK(json.at("starts")[2].at("end") == "success");
}

TEST_CASE("restarts end: the code is that of the last failure") {
  const ProgramEnd end =
      run_program(launch({"-n", "1", "--max-restarts", "1", "--restart-pause", "0"}, {},
                         shell("exit $((7 + TORCHELASTIC_RESTART_COUNT))")));
  CHECK(end.code == 8);
  CHECK(contains(end.err, "smp-launch: no restart: 1 restart was made (--max-restarts)\n"));
}

TEST_CASE("Ctrl-C during the pause before a restart ends the job") {
  ScratchFolder folder;
  Program program(launch({"-n", "1", "--max-restarts", "1", "--restart-pause", "1h"}, {},
                         shell("echo x >> " + folder / "began" + "; exit 1")));
  wait_for_lines(folder / "began", 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  program.signal(SIGINT);
  const ProgramEnd end = program.wait();
  CHECK(end.code == 130);
  CHECK(contains(end.err, "smp-launch: interrupted by SIGINT\n"));
}

TEST_CASE("--timeout counts all starts together, and says the time that was given") {
  const ProgramEnd end = run_program(
      launch({"-n", "1", "--max-restarts", "9", "--restart-pause", "0", "--timeout", "1s"}, {},
             shell("test $TORCHELASTIC_RESTART_COUNT = 1 && exec sleep 300; sleep 0.3; exit 1")));
  CHECK(end.code == 124);
  CHECK(contains(end.err, "smp-launch: the job had not ended after 1.0 s (--timeout)\n"));
}

TEST_CASE("a spare takes the place of a lost host, and the ranks keep their numbers") {
  ScratchFolder folder;
  // The agent of host b is killed in its first start.
  const ProgramEnd end =
      run_program(launch({"--hosts", "a:1,b:1,c:1", "--spares", "1", "--via",
                          "exec:exec $SMP_AGENT --agent", "--max-restarts", "1", "--restart-pause",
                          "10ms", "--show-ranks", "all", "--prefix", "{host}{rank} "},
                         {},
                         shell("echo up; test $RANK = 1 && test $TORCHELASTIC_RESTART_COUNT = 0 && "
                               "{ p=$(cut -d' ' -f4 /proc/$$/stat); kill -9 $p; sleep 300; }; "
                               "test $TORCHELASTIC_RESTART_COUNT = 1 || sleep 300")));
  CHECK(end.code == 0);
  CHECK(contains(end.err, "smp-launch: host c takes the place of host b\n"));
  CHECK(contains(end.err, "smp-launch: host b was lost with rank 1, "));
  CHECK(contains(end.out, "c1 up\n"));
}

TEST_CASE("ranks that post how far they are, on other hosts: who is behind is told") {
  // As smp/plan/runinfo/progress_page.h has it.
  const std::string post =
      "import mmap, os, struct, time\n"
      "path, offset = os.environ['SMP_PROGRESS_PAGE'].rsplit(':', 1)\n"
      "page = mmap.mmap(os.open(path, os.O_RDWR), 4096, offset=int(offset))\n"
      "waits = os.environ['RANK'] == '0'\n"
      "page[8:48] = struct.pack('<5q', 3, 1, -1, 41 + waits, waits)\n"
      "page[48:112] = b'forward'.ljust(32, b'\\0') + b'data.gradients'.ljust(32, b'\\0')\n"
      "page[0:8] = struct.pack('<Q', 2)\n"
      "time.sleep(60)\n";
  const ProgramEnd end = run_program(launch(
      kTwoHosts,
      {"--hang-timeout", "1s", "--on-hang", "end", "--hang-dump", "gdb", "--show-ranks", "all"},
      {"/usr/bin/env", "python3", "-c", post}));
  CHECK(end.code == 124);
  CHECK(contains(end.err,
                 "; the others wait for rank 1\n  rank 1 is at step 3: forward, microbatch 1; not "
                 "waiting, last collective 41 (data.gradients)\n  rank 0 is at step 3: forward, "
                 "microbatch 1; waits in collective 42 (data.gradients)\n"));
  // The stacks, where gdb is; else why there are none.
  const bool with_gdb = run_program({"/bin/sh", "-c", "command -v gdb"}).code == 0;
  for (const char* rank : {"[0] ", "[1] "})
    CHECK(contains(end.err, std::string(rank) +
                                (with_gdb ? "Thread 1 ("
                                          : "smp-launch: no stacks: cannot start 'gdb': not found "
                                            "in PATH\n")));
}

// A py-spy of our own says what it was asked for.
TEST_CASE("Python programs that hang show their stacks by py-spy") {
  ScratchFolder folder;
  const std::string py_spy = folder / "py-spy";
  std::ofstream(py_spy) << "#!/bin/sh\necho \"stacks: $1 $2 $3\"\n";
  std::filesystem::permissions(py_spy, std::filesystem::perms::owner_all);
  for (const auto& where : std::vector<std::vector<std::string>>{{"-n", "1"}, kTwoHosts}) {
    const ProgramEnd end = run_program(launch(where,
                                              {"--silence-timeout", "1s", "--on-hang", "end",
                                               "--hang-dump", "py-spy", "--show-ranks", "all"},
                                              shell("echo pid $$; exec sleep 300")),
                                       {"PATH=" + folder.path() + ":" + getenv("PATH")});
    CHECK(end.code == 124);
    const size_t pid = end.out.find("[0] pid ");
    REQUIRE(pid != end.out.npos);
    const std::string number = end.out.substr(pid + 8, end.out.find('\n', pid) - pid - 8);
    CHECK(contains(end.err, "[0] stacks: dump --pid " + number + "\n"));
  }
}

TEST_CASE("a program that falls silent is ended") {
  const ProgramEnd end = run_program(launch(
      {"-n", "1"}, {"--silence-timeout", "1s", "--on-hang", "end"}, shell("exec sleep 300")));
  CHECK(end.code == 124);
  CHECK(contains(end.err, "smp-launch: no rank has written anything for "));
  CHECK(contains(end.err, "\n  rank 0 is silent for "));
}

TEST_CASE("a program that hangs shows where it is on SIGQUIT, before it is ended") {
  const std::string hang =
      "import faulthandler, mmap, os, signal, struct, time\n"
      "faulthandler.register(signal.SIGQUIT)\n"
      "path, offset = os.environ['SMP_PROGRESS_PAGE'].rsplit(':', 1)\n"
      "page = mmap.mmap(os.open(path, os.O_RDWR), 4096, offset=int(offset))\n"
      "page[0:8] = struct.pack('<Q', 2)\n"
      "while True: time.sleep(60)\n";
  const ProgramEnd end = run_program(
      launch({"-n", "1"}, {"--hang-timeout", "1s", "--on-hang", "end", "--hang-dump", "quit"},
             {"/usr/bin/env", "python3", "-c", hang}));
  CHECK(end.code == 124);
  CHECK(contains(end.err, "[0]   File \"<string>\", line 6 in <module>\n"));
  CHECK(contains(end.err, "smp-launch: no rank has made progress for "));
}

TEST_CASE("another terminal, a log of events and Prometheus's collector see how a run stands") {
  ScratchFolder folder;
  const std::string run = folder / "run", metrics = folder / "smp.prom";
  Program program(
      launch({"-n", "3", "--run-dir", run, "--prometheus", metrics}, {},
             shell("test $RANK = 2 && exit 0; echo x >> " + (folder / "up") + "; exec sleep 60")));
  wait_for_lines(folder / "up", 2);
  wait_for_lines(run + "/events.jsonl", 2);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  ProgramEnd status;
  do {
    status = run_program({SMP_LAUNCH, "--status", run});
  } while ((!contains(status.out, " 2 of 3 running") ||
            !contains(read_file(metrics), "smp_ranks_running")) &&
           std::chrono::steady_clock::now() < limit);
  CHECK(status.code == 0);
  CHECK(contains(status.out, ": running for "));
  CHECK(contains(status.out, "  ranks     2 of 3 running\n"));
  CHECK(contains(read_file(metrics), "\nsmp_ranks_running{job=\""));
  program.signal(SIGTERM);
  CHECK(program.wait().code == 143);
  const ProgramEnd ended = run_program({SMP_LAUNCH, "--status", run});
  CHECK(contains(ended.out, " ago, exit code 143\n"));
  const std::vector<std::string> events = wait_for_lines(run + "/events.jsonl", 4);
  CHECK(Json::parse(events.front()).at("event") == "start");
  CHECK(Json::parse(events[1]).at("rank") == 2);
  CHECK(Json::parse(events.back()).at("text") == "exit code 143");
}

TEST_CASE("the status of a run that is none, or whose smp-launch is gone") {
  ScratchFolder folder;
  const ProgramEnd none = run_program({SMP_LAUNCH, "--status", folder.path()});
  CHECK(none.code == 3);
  CHECK(contains(none.err, "/status.json: No such file or directory\n"));
  Program program(launch({"-n", "1", "--run-dir", folder / "run"}, {}, shell("sleep 60")));
  wait_for_lines(folder / "run/events.jsonl", 1);
  std::string status;
  while (!contains(status, "\"running\": 1")) status = read_file(folder / "run/status.json");
  const auto second = Json::parse(status).at("process").get<pid_t>();
  program.signal(SIGSTOP);  // neither tells the end of the other
  kill(second, SIGKILL);
  program.signal(SIGKILL);
  CHECK(program.wait().code == 137);
  const auto is_gone = [&] {
    const ProgramEnd end = run_program({SMP_LAUNCH, "--status", folder / "run"});
    CHECK(end.code == 0);
    return contains(end.out, " has ended without a report; last status ") &&
           contains(end.out, "  ranks     1 of 1 were running\n");
  };
  for (int i = 0; i < 400 && !is_gone(); ++i) usleep(50'000);
  CHECK(is_gone());
  // Another process has its number by now.
  const std::string before = fmt::format("\"process\": {}", second);
  status = read_file(folder / "run/status.json");
  REQUIRE(contains(status, before));
  status.replace(status.find(before), before.size(), fmt::format("\"process\": {}", getpid()));
  std::ofstream(folder / "run/status.json") << status;
  CHECK(is_gone());
}
