#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "launching.h"

// How a job ends, whoever ends it, and that nothing is left of it.

using namespace smp;
namespace fs = std::filesystem;

TEST_CASE("ranks that ignore SIGTERM are killed after --grace") {
  ScratchFolder folder;
  const std::string ready = folder / "ready";
  const ProgramEnd end =
      run_program(launch({"-n", "3", "--grace", "300ms"},
                         "trap '' TERM; echo up >> " + ready + "; test $RANK = 1 && { " +
                             wait_for(ready, 3) + "exit 5; }; while :; do sleep 1; done"));
  CHECK(end.code == 5);
  CHECK(end.seconds > 0.3);
  CHECK(end.seconds < kSoonS);
  CHECK(contains(end.err,
                 "consequence: ranks 0, 2 killed by smp-launch, 300 ms after the request to end"));
}

TEST_CASE("a stopped rank is ended too") {
  const ProgramEnd end = run_program(launch(
      {"-n", "2"}, "test $RANK = 0 && kill -STOP $$; test $RANK = 1 && { sleep 0.2; exit 4; }"));
  CHECK(end.code == 4);
  CHECK(end.seconds < kSoonS);
}

TEST_CASE("nothing that a rank has started outlives the job") {
  ScratchFolder folder;
  const std::string pids = folder / "pids";
  // One child in the rank's session, one in a session of its own that ignores SIGTERM, and one
  // whose parent has gone.
  const std::string start = fmt::format(
      "sleep 100 & echo $! >> {0}; "
      "setsid sh -c 'trap \"\" TERM; echo $$ >> {0}; while :; do sleep 1; done' & "
      "(setsid sh -c 'sh -c \"echo \\$\\$ >> {0}; exec sleep 100\" &' &); ",
      pids);
  SUBCASE("a failure") {
    const ProgramEnd end =
        run_program(launch({"-n", "2"}, start + wait_for(pids, 6) + "exit $RANK"));
    CHECK(end.code == 1);
  }
  SUBCASE("a good end") {
    const ProgramEnd end = run_program(launch({"-n", "2"}, start + wait_for(pids, 6)));
    CHECK(end.code == 0);
    CHECK(contains(end.err, "that the ranks had left behind"));
  }
  SUBCASE("kill -9 of smp-launch") {
    Program program(launch({"-n", "2"}, start + "echo $$ >> " + pids + "; sleep 100"));
    wait_for_lines(pids, 8);
    program.signal(SIGKILL);
    CHECK(program.wait().code == 137);
  }
  SUBCASE("kill -9 of its second process") {
    Program program(launch({"-n", "2"}, start + "echo $PPID >> " + pids + "; sleep 100"));
    wait_for_lines(pids, 8);
    // The ranks' parent is the supervising process: every other number is a rank's descendant.
    const ProgramEnd ranks = run_program(
        {"/bin/sh", "-c",
         fmt::format(
             "for p in $(cat {}); do grep -q smp-supervise /proc/$p/comm 2>/dev/null && kill "
             "-9 $p; done; true",
             pids)});
    CHECK(ranks.code == 0);
    const ProgramEnd end = program.wait();
    CHECK(end.code == 125);
    CHECK(contains(end.err, "its supervising process was killed by signal 9"));
  }
  CHECK(all_gone(wait_for_lines(pids, 6)));
}

TEST_CASE("kill -9 of smp-launch right after its start leaves nothing") {
  ScratchFolder folder;
  const std::string pids = folder / "pids";
  for (int delay_ms : {0, 1, 2, 4, 8, 12, 16, 20, 30, 40}) {
    Program program(launch({"-n", "8"}, "echo $$ >> " + pids + "; exec sleep 100"));
    usleep(static_cast<useconds_t>(delay_ms * 1000));
    program.signal(SIGKILL);
    program.wait();
  }
  std::vector<std::string> started = sorted_lines(read_file(pids));
  CHECK(all_gone(started));
  usleep(100'000);  // a rank that had just been started may write its number only now
  started = sorted_lines(read_file(pids));
  CHECK(all_gone(started));
}

TEST_CASE("Ctrl-C once asks the ranks to end, twice kills them") {
  ScratchFolder folder;
  const std::string ready = folder / "ready";
  SUBCASE("once") {
    Program program(launch(
        {"-n", "2", "--show-ranks", "all"},
        "trap 'echo bye; exit 0' INT; echo $$ >> " + ready + "; while :; do sleep 0.05; done"));
    wait_for_lines(ready, 2);
    program.signal(SIGINT);
    const ProgramEnd end = program.wait();
    CHECK(end.code == 130);
    CHECK(sorted_lines(end.out) == std::vector<std::string>{"[0] bye", "[1] bye"});
    CHECK(without_times(end.err) ==
          "smp-launch: interrupted by SIGINT\n"
          "  consequence: ranks 0, 1 ended by smp-launch\n"
          "smp-launch: 2 ranks ended in T; exit code 130\n");
  }
  SUBCASE("twice") {
    Program program(launch({"-n", "2", "--grace", "60s"}, "trap 'echo $$ >> " + ready +
                                                              "' INT; echo $$ >> " + ready +
                                                              "; while :; do sleep 0.05; done"));
    wait_for_lines(ready, 2);
    program.signal(SIGINT);
    wait_for_lines(ready, 4);
    program.signal(SIGINT);
    const ProgramEnd end = program.wait();
    CHECK(end.code == 130);
    CHECK(end.seconds < kSoonS);
  }
  SUBCASE("a terminal's Ctrl-C, which reaches the whole process group, counts once") {
    Program program(launch(
        {"-n", "2"}, "trap 'exit 0' INT; echo $$ >> " + ready + "; while :; do sleep 0.05; done"));
    wait_for_lines(ready, 2);
    kill(-program.pid(), SIGINT);
    const ProgramEnd end = program.wait();
    CHECK(end.code == 130);
    CHECK(contains(end.err, "ended by smp-launch"));
    CHECK(!contains(end.err, "killed by smp-launch"));
  }
  SUBCASE("SIGTERM") {
    Program program(launch({"-n", "2"}, "echo $$ >> " + ready + "; sleep 100"));
    wait_for_lines(ready, 2);
    program.signal(SIGTERM);
    CHECK(program.wait().code == 143);
  }
  CHECK(all_gone(wait_for_lines(ready, 2)));
}

TEST_CASE("ranks that run as another user by now are said to, and are not waited for") {
  if (geteuid() != 0 || access("/usr/bin/setpriv", X_OK) != 0) {
    MESSAGE("needs root and setpriv: not tried");
    return;
  }
  ScratchFolder folder;
  fs::permissions(folder.path(), fs::perms(0755));
  fs::copy_file(SMP_LAUNCH, folder / "smp-launch");
  fs::copy_file("/usr/bin/python3", folder / "python3");
  fs::permissions(folder / "python3", fs::perms(04755));
  const std::string pids = folder / "pids";
  std::ofstream(pids).close();
  fs::permissions(pids, fs::perms(0666));
  const auto run = [&](const std::vector<std::string>& rank) {
    return run_program(
        joined({"/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
                folder / "smp-launch", "-n", "1", "--timeout", "3s", "--grace", "100ms", "--"},
               rank));
  };
  const std::string becomes_root = fmt::format(
      "import os, time; os.setuid(0); print(os.getpid(), file=open('{}', 'a')); time.sleep(60)",
      pids);
  const ProgramEnd rank = run({folder / "python3", "-I", "-c", becomes_root});
  const ProgramEnd child =
      run({"/bin/sh", "-c", "\"$0\" -I -c \"$1\" & wait", folder / "python3", becomes_root});
  std::istringstream started(read_file(pids));
  int count = 0;
  for (pid_t pid; started >> pid; ++count) kill(pid, SIGKILL);
  if (count == 0) {
    MESSAGE("no program may become another user in ", folder.path(), ": not tried");
    return;
  }
  CHECK(rank.code == 124);
  CHECK(contains(rank.err,
                 "  consequence: rank 0 did not end: its process has changed its user (setuid, "
                 "sudo), so smp-launch has no permission to signal it\n"));
  CHECK(contains(rank.err, "smp-launch: 0 of 1 rank ended in "));
  CHECK(rank.seconds < 12);  // for one that hangs in the kernel it waits 20 s
  CHECK(contains(child.err,
                 "smp-launch: could not end 1 process of the ranks: hung inside the kernel, or "
                 "changed to another user\n"));
}

TEST_CASE("SIGUSR1, SIGUSR2 and SIGCONT are passed on to the ranks") {
  for (const int number : {SIGUSR1, SIGUSR2, SIGCONT}) {
    ScratchFolder folder;
    Program program(launch({"-n", "2"}, fmt::format("trap 'exit 0' {}; echo $$ >> {}; "
                                                    "while :; do sleep 0.05; done",
                                                    number, folder / "ready")));
    wait_for_lines(folder / "ready", 2);
    program.signal(number);
    CHECK(program.wait().code == 0);
  }
}

TEST_CASE("--timeout ends the job with exit code 124") {
  const ProgramEnd end = run_program(launch({"-n", "2", "--timeout", "300ms"}, "sleep 100"));
  CHECK(end.code == 124);
  CHECK(end.seconds < kSoonS);
  CHECK(without_times(end.err) ==
        "smp-launch: the job had not ended after T (--timeout)\n"
        "  consequence: ranks 0, 1 ended by smp-launch\n"
        "smp-launch: 2 ranks ended in T; exit code 124\n");
}

// Who opens a FIFO waits for its other end, which nobody opens.
TEST_CASE("a FIFO in place of an error file keeps smp-launch from nothing") {
  ScratchFolder folder;
  const auto start = [&](const std::string& rank_0, const std::vector<std::string>& options) {
    const std::string script =
        "test $RANK = 0 && { rm -f $TORCHELASTIC_ERROR_FILE; mkfifo $TORCHELASTIC_ERROR_FILE; " +
        rank_0 + "; }; echo up >> " + (folder / "ready") + "; sleep 100";
    return std::make_unique<Program>(
        launch(joined({"-n", "2", "--run-dir", folder / "run"}, options), script));
  };
  SUBCASE("--timeout") {
    const ProgramEnd end = start("exit 0", {"--timeout", "1s"})->wait();
    CHECK(end.code == 124);
    CHECK(end.seconds < kSoonS);
  }
  SUBCASE("SIGTERM") {
    const auto program = start("exit 0", {});
    wait_for_lines(folder / "ready", 1);
    program->signal(SIGTERM);
    const ProgramEnd end = program->wait();
    CHECK(end.code == 128 + SIGTERM);
    CHECK(end.seconds < kSoonS);
  }
  SUBCASE("a failure") {
    const ProgramEnd end = start("exit 3", {})->wait();
    CHECK(end.code == 3);
    CHECK(contains(end.err, "smp-launch: rank 0 ended with exit code 3"));
    CHECK(end.seconds < kSoonS);
  }
}

TEST_CASE("a FIFO is no report, and is said to be none before anything starts") {
  ScratchFolder folder;
  const std::string fifo = folder / "report.json";
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  const ProgramEnd end = run_program(launch({"-n", "1", "--report", fifo}, "exit 0"));
  CHECK(end.code == 3);
  CHECK(end.err ==
        fmt::format("smp-launch: {}: cannot be written: No such device or address\n", fifo));
}

TEST_CASE("processes that the launcher's shell had before are not touched") {
  ScratchFolder folder;
  const std::string pids = folder / "pids";
  const ProgramEnd end = run_program(
      {"/bin/sh", "-c",
       fmt::format("sleep 60 & echo $! > {}; exec {} -n 2 -- sh -c 'kill -9 $PPID; sleep 300'",
                   pids, SMP_LAUNCH)});
  CHECK(end.code == 125);
  const std::vector<std::string> stranger = wait_for_lines(pids, 1);
  CHECK(!all_gone(stranger, std::chrono::milliseconds(0)));
  kill(std::stoi(stranger.front()), SIGKILL);
}
