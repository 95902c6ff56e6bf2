#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "program.h"

// Agents that reach further agents, as local children here. Of seven hosts smp-launch reaches h0
// and h4; h0 reaches h1, which reaches h2, and h3; h4 reaches h5 and h6.

using namespace smp;

namespace {

std::vector<std::string> launch(const std::string& script,
                                const std::vector<std::string>& options = {},
                                const std::string& agent = "exec $SMP_AGENT --agent") {
  return joined(
      joined({SMP_LAUNCH, "--hosts", "h[0-6]:2", "--fan-out", "2", "--via", "exec:" + agent},
             options),
      {"--", "/bin/sh", "-c", script});
}

// How every rank begins: with a child that does not obey, in a session of its own.
std::string with_child(const std::string& pids) {
  return fmt::format(
      "echo $$ >> {0}; setsid sh -c 'trap \"\" TERM; echo $$ >> {0}; while :; do sleep 1; done' & ",
      pids);
}

}  // namespace

TEST_CASE("ranks of a tree of agents have their places, and their lines stay whole") {
  const ProgramEnd end = run_program(launch(
      "i=0; while [ $i -lt 500 ]; do echo $RANK $LOCAL_RANK $GROUP_RANK/$GROUP_WORLD_SIZE $i; "
      "i=$((i+1)); done",
      {"--show-ranks", "all"}));
  CHECK(end.code == 0);
  CHECK(end.err == "");
  std::map<int, int> next;
  std::istringstream lines(end.out);
  for (std::string line; std::getline(lines, line);) {
    const int rank = std::stoi(line.substr(1));
    REQUIRE(line == fmt::format("[{0}] {0} {1} {2}/7 {3}", rank, rank % 2, rank / 2, next[rank]++));
  }
  for (int rank = 0; rank < 14; ++rank) CHECK(next[rank] == 500);
}

TEST_CASE("arguments and variables arrive through a tree as they were given") {
  std::vector<std::string> words = launch("test $RANK = 13 && printf '<%s>' \"$A\" \"$@\"; true",
                                          {"--show-ranks", "all", "--env", "A=$x \"y\"'z'"});
  words.insert(words.end(), {"sh", "a b", "", "$HOME", "*"});
  CHECK(run_program(words).out == "[13] <$x \"y\"'z'><a b><><$HOME><*>\n");
}

TEST_CASE("a failure below an agent is named, and all that the ranks started is ended") {
  ScratchFolder folder;
  const std::string pids = folder / "pids";
  const ProgramEnd end =
      run_program(launch(with_child(pids) + "if [ $RANK = 13 ]; then while [ $(wc -l < " + pids +
                         ") -lt 28 ]; do sleep 0.05; done; echo oops >&2; exit 9; fi; sleep 60"));
  CHECK(end.code == 9);
  CHECK(contains(end.err, "smp-launch: rank 13 on host h6 ended with exit code 9, "));
  CHECK(contains(end.err, "    oops\n  consequence: ranks 0-12 ended by smp-launch\n"));
  CHECK(all_gone(wait_for_lines(pids, 28)));
}

TEST_CASE("an agent that dies takes the hosts that it reaches with it, and is the cause") {
  ScratchFolder folder;
  const std::string pids = folder / "pids";
  Program program(launch(
      with_child(pids) + "test $RANK = 8 && echo $PPID > " + (folder / "agent") + "; sleep 100",
      {"--host-timeout", "1s"}));
  wait_for_lines(pids, 28);
  const int agent = std::stoi(wait_for_lines(folder / "agent", 1).front());
  std::string why;
  SUBCASE("killed") {
    kill(agent, SIGKILL);
    why = "the connection to its agent ended";
  }
  SUBCASE("stopped") {
    kill(agent, SIGSTOP);
    why = "no heartbeat for 1.0 s";
  }
  const ProgramEnd end = program.wait();
  CHECK(end.code == 125);
  CHECK(contains(end.err, "smp-launch: host h4 was lost with ranks 8, 9, "));
  CHECK(contains(end.err, "  consequence: ranks 0-7 ended by smp-launch\n"));
  CHECK(contains(end.err,
                 "  consequence: ranks 10-13 lost with its host: its connection runs through host "
                 "h4, which was lost: " +
                     why));
  CHECK(all_gone(wait_for_lines(pids, 28)));
}

TEST_CASE("a spare takes the place of an agent that dies, not of the hosts that it reaches") {
  const ProgramEnd end = run_program(
      {SMP_LAUNCH, "--hosts", "h[0-8]:1", "--spares", "2", "--fan-out", "2", "--via",
       "exec:exec $SMP_AGENT --agent", "--max-restarts", "1", "--restart-pause", "10ms", "--",
       "/bin/sh", "-c",
       "test $TORCHELASTIC_RESTART_COUNT = 1 && exit; test $RANK = 0 && kill -9 $PPID; sleep 60"});
  CHECK(end.code == 0);
  CHECK(contains(end.err, "smp-launch: host h7 takes the place of host h0\n"));
  CHECK(!contains(end.err, "the place of host h1"));
  CHECK(!contains(end.err, "no spare host"));
}

TEST_CASE("an agent below another that dies is a lost host like any") {
  ScratchFolder folder;
  const std::string pids = folder / "pids";
  Program program(launch(with_child(pids) + "test $RANK = 6 && echo $PPID > " + (folder / "agent") +
                         "; sleep 100"));
  wait_for_lines(pids, 28);
  kill(std::stoi(wait_for_lines(folder / "agent", 1).front()), SIGKILL);
  const ProgramEnd end = program.wait();
  CHECK(end.code == 125);
  CHECK(contains(end.err, "smp-launch: host h3 was lost with ranks 6, 7, "));
  CHECK(all_gone(wait_for_lines(pids, 28)));
}

TEST_CASE("nothing is left of a tree when smp-launch is killed") {
  ScratchFolder folder;
  const std::string pids = folder / "pids";
  Program program(launch(with_child(pids) + "sleep 100"));
  wait_for_lines(pids, 28);
  program.signal(SIGKILL);
  program.wait();
  CHECK(all_gone(wait_for_lines(pids, 28)));
}

TEST_CASE("hosts that agents cannot reach are told with their reasons") {
  const auto error = [](const std::string& command) {
    const ProgramEnd end = run_program(launch("true", {}, command));
    CHECK(end.code == 125);
    return end.err;
  };
  CHECK(error("test $SMP_HOST = h3 && { echo key >&2; exit 3; }; exec $SMP_AGENT --agent") ==
        "smp-launch: 1 of 7 hosts could not be used:\n"
        "  host h3: no agent: the command ended with exit code 3 (key)\n");
  CHECK(error("test $SMP_HOST = h4 && { echo key >&2; exit 3; }; exec $SMP_AGENT --agent") ==
        "smp-launch: 3 of 7 hosts could not be used:\n  host h4: no agent: the command ended with "
        "exit code 3 (key)\n  host h5: its connection runs through host h4, which was not reached: "
        "no "
        "agent: the command ended with exit code 3 (key)\n  host h6: its connection runs through "
        "host h4, which was not reached: no agent: the command ended with exit code 3 (key)\n");
}

TEST_CASE("signals reach the ranks of a tree, and --check all of its hosts") {
  ScratchFolder folder;
  const std::string ready = folder / "ready";
  Program program(
      launch("trap 'echo usr; exit 0' USR1; echo $$ >> " + ready + "; while :; do sleep 0.05; done",
             {"--show-ranks", "all"}));
  wait_for_lines(ready, 14);
  program.signal(SIGUSR1);
  const ProgramEnd end = program.wait();
  CHECK(end.code == 0);
  CHECK(sorted_lines(end.out).size() == 14);
  const ProgramEnd check =
      run_program({SMP_LAUNCH, "--check", "--hosts", "h[0-6]", "--fan-out", "2", "--via", "local"});
  for (int host = 0; host < 7; ++host)
    CHECK(contains(check.out, fmt::format("\nh{}    yes      ", host)));
}
