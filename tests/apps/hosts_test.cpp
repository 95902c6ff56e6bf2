#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>

#include "program.h"
#include "smp/plan/text/json.h"

// smp-launch with agents, which run as local children here: everything but the ssh between.

using namespace smp;
using namespace smp::text;

namespace {

const std::vector<std::string> kTwoHosts = {"--hosts", "a:2,b:2", "--via",
                                            "exec:exec $SMP_AGENT --agent"};

std::vector<std::string> launch_on(const std::vector<std::string>& hosts,
                                   const std::vector<std::string>& options,
                                   const std::string& script) {
  return joined(joined({SMP_LAUNCH}, joined(hosts, options)), {"--", "/bin/sh", "-c", script});
}

std::vector<std::string> launch(const std::vector<std::string>& options,
                                const std::string& script) {
  return launch_on(kTwoHosts, options, script);
}

// The process that is the parent of `pid`.
std::string parent_of(const std::string& pid) {
  const std::string stat = read_file("/proc/" + pid + "/stat");
  std::istringstream fields(stat.substr(stat.rfind(')') + 2));
  std::string state, parent;
  fields >> state >> parent;
  return parent;
}

}  // namespace

TEST_CASE("ranks on several hosts know their places and where to meet") {
  const ProgramEnd end = run_program(
      launch({"--show-ranks", "all"},
             "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE "
             "$NODE_RANK $ROLE_RANK $MASTER_ADDR ${#SMP_JOB_KEY}"));
  CHECK(end.code == 0);
  CHECK(end.err == "");
  CHECK(sorted_lines(end.out) == std::vector<std::string>{"[0] 0 0 4 2 0 2 0 0 127.0.0.1 64",
                                                          "[1] 1 1 4 2 0 2 0 1 127.0.0.1 64",
                                                          "[2] 2 0 4 2 1 2 1 2 127.0.0.1 64",
                                                          "[3] 3 1 4 2 1 2 1 3 127.0.0.1 64"});
}

TEST_CASE("ranks have none of their agent's files") {
  const ProgramEnd end = run_program(
      launch({},
             "i=3; while [ $i -lt 64 ]; do [ -e /proc/$$/fd/$i ] && echo has $i; i=$((i+1)); "
             "done; cat; echo read"));
  CHECK(end.out == "[0] read\n");
}

#ifdef SLOW_DISK
TEST_CASE("a host whose file system stands still while its ranks start is not lost") {
  ScratchFolder folder;
  const ProgramEnd end = run_program({SMP_LAUNCH, "--hosts", "a:1,b:1", "--via",
                                      "exec:exec env LD_PRELOAD=" SLOW_DISK " $SMP_AGENT --agent",
                                      "--host-timeout", "1s", "--run-dir", folder / "run",
                                      "--show-ranks", "all", "--", "/bin/sh", "-c", "echo $RANK"});
  CHECK(end.code == 0);
  CHECK(sorted_lines(end.out) == std::vector<std::string>{"[0] 0", "[1] 1"});
  CHECK(end.err == "");
}

TEST_CASE("no host is lost while a file for it is read from a disk that stands still") {
  ScratchFolder folder;
  std::ofstream(folder / "slow.txt") << "text";
  const ProgramEnd end = run_program(
      {"/bin/sh", "-c",
       "cd " + folder.path() +
           " && exec env LD_PRELOAD=" SLOW_DISK " " SMP_LAUNCH
           " --hosts a:1,b:1 --via local --host-timeout 1s --push slow.txt -- test -s slow.txt"});
  CHECK(end.code == 0);
  CHECK(end.err == "");
}
#endif

TEST_CASE("unequal hosts, and hosts from a file without some") {
  ScratchFolder folder;
  std::ofstream(folder / "hosts") << "a slots=1\nb slots=3 # big\nc:5\n";
  const ProgramEnd end =
      run_program(launch_on({"--hostfile", folder / "hosts", "--exclude", "c", "--via", "local"},
                            {"--show-ranks", "all", "-n", "4"}, "echo $GROUP_RANK $LOCAL_RANK"));
  CHECK(sorted_lines(end.out) ==
        std::vector<std::string>{"[0] 0 0", "[1] 1 0", "[2] 1 1", "[3] 1 2"});
}

TEST_CASE("arguments and variables arrive as they were given") {
  const std::vector<std::string> arguments = {
      "a b",   "",  "--",       "$HOME",      "`x`",
      "\"'\\", "*", "\xff\xfe", "line\nline", std::string(100'000, 'x')};
  std::vector<std::string> words = {SMP_LAUNCH};
  words.insert(words.end(), kTwoHosts.begin(), kTwoHosts.end());
  for (const char* word : {"--env", "A=$x \"y\"'z'\n", "--env", "B", "--", "/bin/sh", "-c",
                           "printf '<%s>' \"$A\" \"$B\" \"$@\"; echo", "sh"})
    words.emplace_back(word);
  words.insert(words.end(), arguments.begin(), arguments.end());
  const ProgramEnd end = run_program(words, {"B=\xc3\xa4 b"});
  std::string expected = "<$x \"y\"'z'\n><\xc3\xa4 b>";
  for (const std::string& argument : arguments) expected += fmt::format("<{}>", argument);
  std::string shown = "[0] ";
  for (char c : expected + "\n") {
    shown.push_back(c);
    if (c == '\n') shown += "[0] ";
  }
  // A line of more than 64 KiB is cut on the console.
  std::string out = end.out;
  const size_t cut = out.find("x\n[0] x");
  REQUIRE(cut != out.npos);
  out.erase(cut + 1, 5);
  CHECK(out + "[0] " == shown);
}

TEST_CASE("the first failure on any host ends all, and is named with its host") {
  ScratchFolder folder;
  const ProgramEnd end = run_program(
      launch({"--report", folder / "r.json"},
             "test $RANK = 3 && { echo oops >&2; ulimit -c 0; kill -SEGV $$; }; sleep 300"));
  CHECK(end.code == 139);
  CHECK(end.seconds < kSoonS);
  CHECK(
      contains(end.err, "smp-launch: rank 3 on host b was killed by SIGSEGV (Segmentation fault)"));
  CHECK(contains(end.err,
                 "  last lines of its standard error:\n    oops\n"
                 "  consequence: ranks 0-2 ended by smp-launch\n"));
  const auto json = Json::parse(read_file(folder / "r.json"));
  CHECK(json["cause"]["host"] == "b");
  CHECK(json["cause"]["rank"] == 3);
  CHECK(json["ranks"][0]["host"] == "a");
}

TEST_CASE("last words come from other hosts too, torch's among them") {
  ScratchFolder folder;
  const ProgramEnd end = run_program(
      launch({"--run-dir", folder / "run"},
             "test $RANK = 0 && { printf '{\"kind\":\"peer_lost\",\"culprit\":2,\"phase\":\"step "
             "3\",\"message\":\"lost 2\"}' > $SMP_ERROR_FILE; exit 1; }; test $RANK = 2 && { sleep "
             "0.1; printf '{\"message\":{\"message\":\"ValueError: x\"}}' > "
             "$TORCHELASTIC_ERROR_FILE; exit 7; }; sleep 30"));
  CHECK(end.code == 7);
  CHECK(contains(end.err, "smp-launch: rank 2 on host b ended with exit code 7"));
  CHECK(contains(end.err, "  rank 2 said:\n    ValueError: x\n"));
  CHECK(contains(end.err, "consequence: rank 0 ended with exit code 1: step 3: lost 2\n"));
}

TEST_CASE("what keeps a host from being used is told for each") {
  const auto error = [](const std::string& command, std::vector<std::string> options = {}) {
    options.insert(options.end(), {"--via", "exec:" + command});
    const ProgramEnd end = run_program(launch_on({"--hosts", "a,b"}, options, "true"));
    CHECK(end.code == 125);
    return end.err;
  };
  CHECK(
      error("test $SMP_HOST = b && { echo no; echo key >&2; exit 3; }; exec $SMP_AGENT --agent") ==
      "smp-launch: 1 of 2 hosts could not be used:\n"
      "  host b: no agent: the command ended with exit code 3 (key)\n");
  CHECK(error("sleep 300", {"--connect-timeout", "200ms"}) ==
        "smp-launch: 2 of 2 hosts could not be used:\n"
        "  host a: no answer in 200 ms\n  host b: no answer in 200 ms\n");
  CHECK(contains(error("cd /; exec head -c 100000 /dev/zero"),
                 "no greeting of an agent within 65536 bytes"));
  CHECK(contains(
      error("printf '\\036smp-agent\\036\\020\\0\\0\\0\\002\\0\\0\\0\\0"
            "\\001\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0'; sleep 5"),
      "host a: its smp-launch is another build (protocol 1, build unknown; the launcher has 3, "));
  const ProgramEnd noisy = run_program(launch_on(
      {"--hosts", "a"}, {"--via", "exec:echo hello; exec $SMP_AGENT --agent"}, "echo ran"));
  CHECK(noisy.out == "[0] ran\n");
}

TEST_CASE("a connection that sshd drops before a word is tried again, and no other failure") {
  const ScratchFolder folder;
  const auto ssh = [&](const std::string& drops, std::vector<std::string> options = {}) {
    // Host b's sshd: a line for each try; the last argument is the command.
    std::ofstream(folder / "ssh") << "#!/bin/sh\nfor word; do test \"$word\" = b && b=1; done\n"
                                     "eval \"command=\\${$#}\"\ntest \"$b\" && echo try >> "
                                  << (folder / "tries") << " && {\n"
                                  << drops << "\n}\nexec sh -c \"$command\"\n";
    std::filesystem::permissions(folder / "ssh", std::filesystem::perms::owner_all);
    std::filesystem::remove(folder / "tries");
    return run_program(launch_on({"--hosts", "a,b"}, options, "echo $RANK"),
                       {fmt::format("PATH={}:{}", folder.path(), std::getenv("PATH"))});
  };
  const std::string dropped =
      "echo 'kex_exchange_identification: Connection closed by remote host' >&2; exit 255; ";
  const ProgramEnd twice =
      ssh("test $(wc -l < " + (folder / "tries") + ") -le 2 && { " + dropped + "}", {});
  CHECK(twice.code == 0);
  CHECK(twice.err == "");
  CHECK(read_file(folder / "tries") == "try\ntry\ntry\n");

  const ProgramEnd always = ssh(dropped, {"--connect-timeout", "2s"});
  CHECK(always.code == 125);
  CHECK(always.seconds < kSoonS);
  CHECK(always.err.starts_with(
      "smp-launch: 1 of 2 hosts could not be used:\n"
      "  host b: connection closed by its sshd (kex_exchange_identification: Connection closed by "
      "remote host), "));
  CHECK(always.err.ends_with(" times\n"));

  const ProgramEnd refused = ssh("echo 'Permission denied (publickey).' >&2; exit 255", {});
  CHECK(refused.code == 125);
  CHECK(contains(refused.err, "host b: login refused"));
  CHECK(read_file(folder / "tries") == "try\n");
}

// That of an agent is a login's.
TEST_CASE("a program is looked for in the PATH that its rank is given") {
  const ScratchFolder folder;
  std::ofstream(folder / "only-here") << "#!/bin/sh\necho found\n";
  std::filesystem::permissions(folder / "only-here", std::filesystem::perms::owner_all);
  const ProgramEnd end =
      run_program({SMP_LAUNCH, "--hosts", "a", "--via",
                   "exec:PATH=/usr/bin:/bin exec $SMP_AGENT --agent", "--", "only-here"},
                  {fmt::format("PATH={}:{}", folder.path(), std::getenv("PATH"))});
  CHECK(end.err == "");
  CHECK(end.out == "[0] found\n");
}

TEST_CASE("a program that a host does not have") {
  std::vector<std::string> words = {SMP_LAUNCH};
  words.insert(words.end(), kTwoHosts.begin(), kTwoHosts.end());
  words.insert(words.end(), {"--", "no-such-program"});
  const ProgramEnd end = run_program(words);
  CHECK(end.code == 125);
  CHECK(contains(end.err, ": cannot start 'no-such-program': not found in PATH\n"));
}

TEST_CASE("nothing is left of ranks on other hosts") {
  ScratchFolder folder;
  const std::string pids = folder / "pids";
  const std::string start = fmt::format(
      "echo $$ >> {0}; setsid sh -c 'trap \"\" TERM; echo $$ >> {0}; while :; do sleep 1; done' & ",
      pids);
  SUBCASE("a good end") {
    const ProgramEnd end = run_program(launch({}, start + "sleep 0.3"));
    CHECK(end.code == 0);
    CHECK(contains(end.err, "smp-launch: killed 8 processes that the ranks had left behind\n"));
  }
  SUBCASE("kill -9 of smp-launch") {
    Program program(launch({}, start + "sleep 100"));
    wait_for_lines(pids, 8);
    program.signal(SIGKILL);
    program.wait();
  }
  SUBCASE("kill -9 of an agent") {
    Program program(
        launch({}, start + "test $RANK = 2 && echo $PPID > " + (folder / "agent") + "; sleep 100"));
    wait_for_lines(pids, 8);
    const std::string agent = wait_for_lines(folder / "agent", 1).front();
    SUBCASE("the process that watches the ranks") { kill(std::stoi(agent), SIGKILL); }
    SUBCASE("the process that guards that one") { kill(std::stoi(parent_of(agent)), SIGKILL); }
    const ProgramEnd end = program.wait();
    CHECK(end.code == 125);
    CHECK(contains(end.err, "smp-launch: host b was lost with ranks 2, 3, "));
  }
  SUBCASE("an agent that is stopped") {
    Program program(launch({"--host-timeout", "500ms"}, start + "test $RANK = 2 && echo $PPID > " +
                                                            (folder / "agent") + "; sleep 100"));
    wait_for_lines(pids, 8);
    kill(std::stoi(wait_for_lines(folder / "agent", 1).front()), SIGSTOP);
    const ProgramEnd end = program.wait();
    CHECK(end.code == 125);
    CHECK(contains(end.err, "no heartbeat for 500 ms\n"));
  }
  CHECK(all_gone(wait_for_lines(pids, 8)));
}

TEST_CASE(
    "ranks on several hosts are told their names, in order, and what an outer job said is not") {
  const std::vector<std::string> names = {"/usr/bin/env", "SMP_HOSTS=outer", SMP_LAUNCH,
                                          "--show-ranks", "all"};
  const std::vector<std::string> script = {"--", "/bin/sh", "-c", "echo ${SMP_HOSTS-none}"};
  CHECK(sorted_lines(
            run_program(joined(names, joined({"--hosts", "b,a", "--via", "local"}, script))).out) ==
        std::vector<std::string>{"[0] b,a", "[1] b,a"});
  CHECK(run_program(joined(names, joined({"-n", "1"}, script))).out == "[0] none\n");
}

// As behind a network that was cut: the test holds the other ends of the agent's channel.
TEST_CASE("a stopped agent is killed where nobody tells of the end of its channel") {
  ScratchFolder folder;
  const std::string to = folder / "to", from = folder / "from", pids = folder / "pids";
  std::vector<int> held;
  for (const std::string& path : {to, from}) {
    REQUIRE(mkfifo(path.c_str(), 0600) == 0);
    held.push_back(open(path.c_str(), O_RDWR | O_CLOEXEC));
  }
  Program guard({"/bin/sh", "-c", fmt::format("exec {} --agent < {} > {}", SMP_LAUNCH, to, from)});
  const auto start = [&](const std::string& timeout) {
    return std::make_unique<Program>(std::vector<std::string>{
        SMP_LAUNCH, "--hosts", "a:1", "--host-timeout", timeout, "--via",
        fmt::format("exec:cat {} & exec cat > {}", from, to), "--", "/bin/sh", "-c",
        fmt::format("setsid sleep 100 & echo $! >> {0}; echo $$ >> {0}; echo $PPID >> {0}; "
                    "until [ -e {1} ]; do sleep 0.01; done; exit 7",
                    pids, folder / "go")});
  };
  SUBCASE("some time after it was to be heard") {
    const auto program = start("1200ms");
    kill(std::stoi(wait_for_lines(pids, 3).back()), SIGSTOP);
    CHECK(contains(program->wait().err, "no heartbeat for 1.2 s\n"));
    const ProgramEnd end = guard.wait();
    CHECK(end.code == 125);
    CHECK(contains(end.err, "smp-launch: its supervising process was killed by signal 9; "));
  }
  SUBCASE("and one that goes on before that is left alone") {
    const auto program = start("100s");
    const int agent = std::stoi(wait_for_lines(pids, 3).back());
    kill(agent, SIGSTOP);
    kill(agent, SIGCONT);
    std::ofstream(folder / "go") << "";
    CHECK(program->wait().code == 7);
    CHECK(guard.wait().code == 0);
  }
  CHECK(all_gone(wait_for_lines(pids, 3)));
  for (const int end : held) close(end);
}

TEST_CASE("signals reach the ranks of all hosts") {
  ScratchFolder folder;
  const std::string ready = folder / "ready";
  const auto run = [&](int number, const std::string& trap) {
    Program program(launch({"--show-ranks", "all"}, "trap '" + trap + "' USR1 INT; echo $$ >> " +
                                                        ready + "; while :; do sleep 0.05; done"));
    wait_for_lines(ready, 4);
    program.signal(number);
    return program.wait();
  };
  SUBCASE("SIGUSR1") {
    const ProgramEnd end = run(SIGUSR1, "echo usr; exit 0");
    CHECK(end.code == 0);
    CHECK(sorted_lines(end.out) ==
          std::vector<std::string>{"[0] usr", "[1] usr", "[2] usr", "[3] usr"});
  }
  SUBCASE("Ctrl-C") {
    const ProgramEnd end = run(SIGINT, "exit 0");
    CHECK(end.code == 130);
    CHECK(contains(end.err, "smp-launch: interrupted by SIGINT\n"));
  }
}

TEST_CASE("Ctrl-C while hosts are being reached") {
  ScratchFolder folder;
  Program program(launch_on({"--hosts", "a,b"},
                            {"--via", "exec:echo $$ >> " + (folder / "pids") + "; exec sleep 100"},
                            "true"));
  wait_for_lines(folder / "pids", 2);
  program.signal(SIGINT);
  const ProgramEnd end = program.wait();
  CHECK(end.code == 130);
  CHECK(end.err == "smp-launch: interrupted by SIGINT\n");
  CHECK(all_gone(wait_for_lines(folder / "pids", 2)));
}

TEST_CASE("lines of ranks on other hosts stay whole under load") {
  const ProgramEnd end = run_program(
      launch({"--show-ranks", "all"},
             "i=0; while [ $i -lt 2000 ]; do echo \"$RANK:$i:abcdefghijklmnopqrstuvwxyz\"; "
             "i=$((i+1)); done"));
  CHECK(end.code == 0);
  std::map<std::string, int> next;
  std::istringstream lines(end.out);
  for (std::string line; std::getline(lines, line);) {
    const std::string rank = line.substr(1, 1);
    REQUIRE(line == fmt::format("[{0}] {0}:{1}:abcdefghijklmnopqrstuvwxyz", rank, next[rank]++));
  }
  for (const char* rank : {"0", "1", "2", "3"}) CHECK(next[rank] == 2000);
}

TEST_CASE("a dry run on hosts asks none of them") {
  const ProgramEnd end =
      run_program({SMP_LAUNCH, "--dry-run=json", "--hosts", "far[1-2]:2", "--", "/bin/true"},
                  {"OMP_NUM_THREADS=1"});
  CHECK(end.code == 0);
  const auto json = Json::parse(end.out);
  CHECK(json["ranks"][3]["host"] == "far2");
  CHECK(json["ranks"][3]["environment"]["LOCAL_RANK"] == "1");
  CHECK(json["ranks"][3]["environment"]["MASTER_ADDR"] == "<drawn at the start>");
}

TEST_CASE("what stands in a line of hosts is refused before anything starts") {
  const ProgramEnd end = run_program({SMP_LAUNCH, "--hosts", "a:2,b:2", "-n", "3", "--", "true"});
  CHECK(end.code == 3);
  CHECK(end.err ==
        "smp-launch: -n gives 3 ranks, but the hosts have 4 slots: leave -n out, or give as many "
        "slots as ranks\n");
}
