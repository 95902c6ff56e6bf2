#include "smp/launcher/local/local_host.h"

#include <doctest/doctest.h>
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>

#include "process/oom_watch.h"
#include "process/spawn.h"
#include "scratch_folder.h"
#include "smp/launcher/environment/rank_environment.h"
#include "smp/launcher/process/descendants.h"

using namespace smp;
using namespace smp::environment;
using namespace smp::job;
using namespace smp::local;
using namespace smp::process;
using namespace smp::system;

namespace {

struct Record : HostEvents {
  void on_output(int process, Stream stream, std::string_view bytes,
                 std::chrono::system_clock::time_point) override {
    (stream == Stream::kOut ? out : err)[process].append(bytes);
  }
  void on_ended(int process, const ProcessEnd& end) override { ends[process] = end; }
  void on_stopped(int process, bool stopped) override { stops[process].push_back(stopped); }
  void on_start_failed(int process, const std::string& why) override { unstarted[process] = why; }
  void on_lost(int, const HostLoss&) override {}
  void on_still_finishing() override { ++still_finishing; }

  std::map<int, std::string> out, err, unstarted;
  std::map<int, ProcessEnd> ends;
  std::map<int, std::vector<bool>> stops;
  int still_finishing = 0;
};

Command shell(const std::string& script) {
  return {{"/bin/sh", "-c", script}, own_environment(), ""};
}

template <typename Condition>
bool dispatch_until(LocalHost& host, Record& record, Condition condition) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition() && std::chrono::steady_clock::now() < limit) {
    pollfd ready{host.event_fd(), POLLIN, 0};
    poll(&ready, 1, 10);
    host.dispatch(record);
  }
  return condition();
}

// Of a process that ends with 7, and has the streams of this one.
ChildSetup setup_of_seven() {
  static const std::vector<std::string> arguments = {"/bin/sh", "-c", "exit 7"}, environment;
  ChildSetup setup;
  setup.arguments = &arguments;
  setup.environment = &environment;
  setup.in = STDIN_FILENO, setup.out = STDOUT_FILENO, setup.err = STDERR_FILENO;
  sigemptyset(&setup.signal_mask);
  getrlimit(RLIMIT_NOFILE, &setup.open_files);
  return setup;
}

}  // namespace

TEST_CASE("a process leads its own session and group") {
  LocalHost host;
  Record record;
  host.start(5, shell("ps -o sid=,pgid= -p $$ | tr -s ' '; echo $$ >&2"));
  REQUIRE(dispatch_until(host, record, [&] { return record.ends.count(5) != 0; }));
  host.finish(record);
  const std::string pid = record.err[5].substr(0, record.err[5].size() - 1);
  CHECK(record.out[5].find(pid) != std::string::npos);
  CHECK(record.out[5].rfind(pid) > record.out[5].find(pid));
  CHECK(!record.ends[5].failed());
}

// Its file system stands still: a pipe that nobody writes to.
TEST_CASE("an error file that cannot be read now holds up no other process") {
  const ScratchFolder folder;
  const std::string path = folder / "words";
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  LocalHost host;
  Record record;
  Command fails = shell("exit 7");
  fails.error_file = path;
  host.start(0, fails);
  host.start(1, shell(fmt::format("while kill -0 {} 2>/dev/null; do sleep 0.01; done; echo there; "
                                  "exec sleep 300",
                                  host.pid_of(0))));
  CHECK(dispatch_until(host, record, [&] { return record.out[1] == "there\n"; }));
  {
    const FileDescriptor words(open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
    if (words) CHECK(write(words.number(), "{}", 2) == 2);
  }
  CHECK(dispatch_until(host, record, [&] { return record.ends.count(0) != 0; }));
  CHECK(record.ends[0].exit_code == 7);
}

TEST_CASE("a process that its control group does not take is started outside it") {
  const FileDescriptor no_group(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ChildSetup setup = setup_of_seven();
  setup.group = no_group.number();
  Spawner spawner;
  const pid_t pid = spawner.spawn(setup);
  REQUIRE(pid > 0);
  int status = 0;
  CHECK(waitpid(pid, &status, 0) == pid);
  CHECK(WEXITSTATUS(status) == 7);
}

// Not the host's start(), which needs pipes for the output.
TEST_CASE("a process can be started where no descriptor is left") {
  ChildSetup setup = setup_of_seven();
  rlimit none = setup.open_files;
  none.rlim_cur = 3;
  setrlimit(RLIMIT_NOFILE, &none);
  const pid_t pid = Spawner().spawn(setup);
  setrlimit(RLIMIT_NOFILE, &setup.open_files);
  REQUIRE(pid > 0);
  int status = 0;
  CHECK(waitpid(pid, &status, 0) == pid);
  CHECK(WEXITSTATUS(status) == 7);
}

TEST_CASE("every exit code and every deadly signal arrives as it is") {
  LocalHost host;
  Record record;
  for (int code = 0; code < 256; code += 15)
    host.start(code, shell("exit " + std::to_string(code)));
  const std::vector<int> signals = {SIGHUP,  SIGINT,  SIGILL,  SIGABRT, SIGBUS, SIGFPE,
                                    SIGKILL, SIGSEGV, SIGPIPE, SIGTERM, SIGUSR1};
  for (int number : signals)
    host.start(1000 + number, shell("ulimit -c 0; kill -" + std::to_string(number) + " $$"));
  REQUIRE(dispatch_until(host, record, [&] { return record.ends.size() == 18 + signals.size(); }));
  for (int code = 0; code < 256; code += 15) {
    CHECK(record.ends[code].exit_code == code);
    CHECK(record.ends[code].signal == 0);
  }
  for (int number : signals) {
    CHECK(record.ends[1000 + number].signal == number);
    CHECK(record.ends[1000 + number].code() == 128 + number);
  }
}

TEST_CASE("a stopped process is told, and goes on with SIGCONT") {
  LocalHost host;
  Record record;
  host.start(0, shell("kill -STOP $$; exit 3"));
  REQUIRE(dispatch_until(host, record, [&] { return !record.stops[0].empty(); }));
  host.signal(0, SIGCONT, SignalScope::kGroup);
  REQUIRE(dispatch_until(host, record, [&] { return record.ends.count(0) != 0; }));
  CHECK(record.stops[0].front());  // the continuation may be hidden behind the end
  CHECK(record.ends[0].exit_code == 3);
}

TEST_CASE("kills for lack of memory are counted, each told once") {
  ScratchFolder folder;
  const std::string events = folder / "memory.events";
  const auto write = [&](int kills) {
    std::ofstream(events) << "low 0\nmax 7\noom 9\noom_kill " << kills << "\noom_group_kill 0\n";
  };
  write(3);
  const std::string limit = folder / "memory.max";
  OomWatch watch({events, folder / "none"}, {folder / "none", limit});
  CHECK(!watch.take_kill());
  write(5);
  CHECK(watch.take_kill());
  CHECK(watch.take_kill());
  CHECK(!watch.take_kill());
  CHECK(watch.limit_bytes() == 0);
  std::ofstream(limit) << "max\n";
  CHECK(watch.limit_bytes() == 0);
  std::ofstream(limit) << "268435456\n";
  CHECK(watch.limit_bytes() == 256 << 20);
  OomWatch own;  // whatever this machine has
  CHECK(!own.take_kill());
}

TEST_CASE("held output waits in the pipes, ends do not") {
  LocalHost host;
  Record record;
  host.hold_output(true);
  host.start(0, shell("echo text"));
  REQUIRE(dispatch_until(host, record, [&] { return record.ends.count(0) != 0; }));
  CHECK(record.out[0] == "");
  host.hold_output(false);
  CHECK(dispatch_until(host, record, [&] { return record.out[0] == "text\n"; }));
}

TEST_CASE("signals that a command holds do not end it before it takes them") {
  LocalHost host;
  Record record;
  // A shell would take them again.
  Command command{{"grep", "^SigBlk:", "/proc/self/status"}, own_environment()};
  command.held_signals = {SIGUSR1, SIGUSR2};
  for (const int process : {0, 1}) host.start(process, process == 0 ? command : shell("sleep 100"));
  for (const int process : {0, 1}) host.signal(process, SIGUSR1, SignalScope::kProcess);
  CHECK(dispatch_until(host, record, [&] { return record.ends.size() == 2; }));
  CHECK(record.ends[0].signal == 0);
  CHECK(record.out[0] == "SigBlk:\t0000000000000a00\n");
  CHECK(record.ends[1].signal == SIGUSR1);
}

TEST_CASE("finish ends orphans in foreign sessions and counts them") {
  LocalHost host;
  Record record;
  host.start(0,
             shell("setsid sleep 100 & (setsid sh -c 'trap \"\" TERM; sleep 100' &); sleep 0.2"));
  REQUIRE(dispatch_until(host, record, [&] { return record.ends.count(0) != 0; }));
  CHECK(host.finish(record) >= 2);
  CHECK(record.still_finishing > 0);
  CHECK(children_of_this_process().empty());
}

TEST_CASE("a host that goes away takes its processes along") {
  {
    LocalHost host;
    host.start(0, shell("trap '' TERM; sleep 100"));
    host.start(1, shell("kill -STOP $$"));
  }
  CHECK(children_of_this_process().empty());
}

TEST_CASE("the last output of a process arrives even when it is read late") {
  LocalHost host;
  Record record;
  host.start(0, shell("head -c 60000 /dev/zero; printf end >&2"));
  siginfo_t ended;
  REQUIRE(waitid(P_ALL, 0, &ended, WEXITED | WNOWAIT) == 0);
  host.finish(record);
  CHECK(record.out[0].size() == 60000);
  CHECK(record.err[0] == "end");
}

TEST_CASE("what cannot be started says why, and costs nothing") {
  LocalHost host;
  CHECK_THROWS_WITH_AS(host.start(0, {{"/no/such/file"}, {}, ""}),
                       "cannot start '/no/such/file': No such file or directory", StartError);
  CHECK_THROWS_WITH_AS(host.start(0, {{"/"}, {}, ""}), "cannot start '/': Permission denied",
                       StartError);
  const std::vector<std::string> long_arguments(40, std::string(130'000, 'x'));
  std::vector<std::string> command = {"/bin/true"};
  command.insert(command.end(), long_arguments.begin(), long_arguments.end());
  CHECK_THROWS_WITH_AS(
      host.start(0, {command, {}, ""}),
      "cannot start '/bin/true': Argument list too long (arguments and environment together)",
      StartError);
  CHECK(children_of_this_process().empty());
}

TEST_CASE("what could be started once, and no more, is told when it is known") {
  ScratchFolder folder;
  const std::string program = folder / "program";
  std::filesystem::copy_file("/bin/true", program);
  LocalHost host;
  Record record;
  host.start(0, {{program}, own_environment(), ""});
  std::filesystem::remove(program);
  host.start(1, {{program}, own_environment(), ""});
  REQUIRE(dispatch_until(host, record,
                         [&] { return record.ends.size() + record.unstarted.size() == 2; }));
  CHECK(record.ends.count(0) == 1);
  CHECK(record.unstarted[1] ==
        fmt::format("cannot start '{}': No such file or directory", program));
  CHECK(host.finish(record) == 0);
}

// As a shell does: a text that names no interpreter is the shell's own.
TEST_CASE(
    "a program is looked up in the PATH that it is given, and a text without #! is run by a "
    "shell") {
  ScratchFolder folder;
  std::filesystem::create_directories(folder / "forbidden");
  std::filesystem::create_directories(folder / "good");
  for (const std::string place : {"forbidden", "good"})
    std::ofstream(folder / (place + "/smp-text")) << "echo $1 from " << place << "; exit 5\n";
  std::filesystem::permissions(folder / "good/smp-text", std::filesystem::perms::owner_all);
  const std::vector<std::string> environment = {
      fmt::format("PATH=/no/such:{}:{}", folder / "forbidden", folder / "good")};
  LocalHost host;
  Record record;
  for (const int process : {0, 1})  // the second is not waited for
    host.start(process, {{"smp-text", "hello"}, environment, ""});
  CHECK_THROWS_WITH_AS(host.start(2, {{"smp-none"}, environment, ""}),
                       "cannot start 'smp-none': not found in PATH", StartError);
  std::ofstream(folder / "forbidden/smp-other") << "exit 5\n";
  CHECK_THROWS_WITH_AS(host.start(2, {{"smp-other"}, environment, ""}),
                       "cannot start 'smp-other': Permission denied", StartError);
  REQUIRE(dispatch_until(host, record, [&] { return record.ends.size() == 2; }));
  host.finish(record);
  for (const int process : {0, 1}) {
    CHECK(record.out[process] == "hello from good\n");
    CHECK(record.ends[process].exit_code == 5);
  }
}

// All of them share the memory of this process for a moment, each with its own words.
TEST_CASE("many processes at once get each its own arguments and environment") {
  LocalHost host;
  Record record;
  constexpr int kProcesses = 100;
  for (int process = 0; process < kProcesses; ++process) {
    const std::string number = std::to_string(process);
    host.start(process, {{"/bin/sh", "-c", "echo $0 $NUMBER", number}, {"NUMBER=" + number}, ""});
  }
  REQUIRE(dispatch_until(host, record, [&] { return record.ends.size() == kProcesses; }));
  host.finish(record);
  for (int process = 0; process < kProcesses; ++process)
    CHECK(record.out[process] == fmt::format("{0} {0}\n", process));
}

// Between its start and the first step of its own, a process is still in the session of this one.
TEST_CASE("a signal to a group reaches processes that have just been started") {
  LocalHost host;
  Record record;
  constexpr int kProcesses = 40;
  for (int process = 0; process < kProcesses; ++process) {
    host.start(process, {{"/bin/sleep", "100"}, own_environment(), ""});
    host.signal(process, SIGTERM, SignalScope::kGroup);
  }
  REQUIRE(dispatch_until(host, record, [&] { return record.ends.size() == kProcesses; }));
  for (int process = 0; process < kProcesses; ++process)
    CHECK(record.ends[process].signal == SIGTERM);
}
