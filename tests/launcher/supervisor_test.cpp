#include "smp/launcher/supervisor.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <deque>
#include <fstream>
#include <functional>
#include <map>
#include <thread>

#include "scratch_folder.h"
#include "smp/launcher/console.h"
#include "smp/launcher/file_descriptor.h"
#include "smp/launcher/report.h"

using namespace smp;
using std::chrono::milliseconds;

namespace {

// Another way to reach a machine: nothing runs, a script says what happens. Each step is delivered
// by one dispatch(); signals to processes are recorded and, if the script says so, obeyed.
class ScriptedHost : public Host {
 public:
  using Step = std::function<void(HostEvents&)>;

  ScriptedHost() : wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

  void then(Step step) {
    steps_.push_back(std::move(step));
    wake();
  }

  std::string name() const override { return "nowhere"; }
  void start(int process, const Command&) override {
    if (process == unstartable) throw StartError("cannot start 'x': the host is full");
  }
  void signal(int process, int number, SignalScope scope) override {
    signals.push_back({process, number, scope});
    if (number != obeyed_signal) return;
    const auto found = own_end.find(process);
    const ProcessEnd end = found == own_end.end() ? ProcessEnd{0, number, false} : found->second;
    then([=](HostEvents& events) { events.on_ended(process, end); });
  }
  void show_stacks(int process) override {
    if (stacks) stacks(process);
  }
  int event_fd() const override { return wake_.number(); }
  void dispatch(HostEvents& events) override {
    uint64_t count;
    while (read(wake_.number(), &count, sizeof count) > 0) {
    }
    std::deque<Step> steps;
    steps.swap(steps_);
    if (late_due_.exchange(false)) steps.push_back(late_);
    for (const Step& step : steps) step(events);
  }
  void hold_output(bool) override {}
  std::optional<RankProgress> progress(int process) const override {
    const auto found = posted.find(process);
    return found == posted.end() ? std::nullopt : std::optional(found->second);
  }
  int finish(HostEvents&) override { return 0; }
  bool heard_since(int, std::chrono::steady_clock::time_point) const override { return !silent; }

  void later(milliseconds time, Step step) {
    timer_ = std::jthread([this, time, step = std::move(step)] {
      std::this_thread::sleep_for(time);
      late_ = step;
      late_due_ = true;
      wake();
    });
  }

  struct Sent {
    int process, number;
    SignalScope scope;
  };
  std::vector<Sent> signals;
  std::map<int, RankProgress> posted;
  int obeyed_signal = SIGTERM;
  std::map<int, ProcessEnd> own_end;  // of processes that were about to end when the signal came
  int unstartable = -1;
  std::function<void(int)> stacks;  // what show_stacks() does
  bool silent = false;

 private:
  void wake() {
    const uint64_t one = 1;
    (void)!write(wake_.number(), &one, sizeof one);
  }
  FileDescriptor wake_;
  std::deque<Step> steps_;
  std::jthread timer_;
  Step late_;
  std::atomic<bool> late_due_{false};
};

struct Fixture {
  Fixture()
      : null(open("/dev/null", O_WRONLY | O_CLOEXEC)), console(null.number(), null.number()) {}
  Job job(int ranks) {
    Job result;
    result.commands.resize(static_cast<size_t>(ranks), Command{{"x"}, {}, ""});
    result.files.resize(static_cast<size_t>(ranks));
    result.grace = milliseconds(50);
    return result;
  }
  FileDescriptor null;
  Console console;
  ScriptedHost host;
};

ProcessEnd code(int value) { return {value, 0, false}; }

}  // namespace

TEST_CASE_FIXTURE(Fixture, "all ranks end well") {
  for (int rank : {1, 0}) host.then([=](HostEvents& events) { events.on_ended(rank, code(0)); });
  const Job two = job(2);
  const JobResult result = supervise(two, host, console, -1);
  CHECK(result.end == JobEnd::kSuccess);
  CHECK(result.exit_code == 0);
  CHECK(host.signals.empty());
  CHECK(report_text(two, result) == "");
}

TEST_CASE_FIXTURE(Fixture, "the others get SIGTERM, and SIGCONT in case they are stopped") {
  host.then([](HostEvents& events) { events.on_ended(1, {0, SIGSEGV, false}); });
  const JobResult result = supervise(job(2), host, console, -1);
  CHECK(result.end == JobEnd::kRankFailed);
  CHECK(result.exit_code == 139);
  CHECK(result.cause->rank == 1);
  REQUIRE(host.signals.size() == 2);
  CHECK(host.signals[0].process == 0);
  CHECK(host.signals[0].number == SIGTERM);
  CHECK(host.signals[0].scope == SignalScope::kGroup);
  CHECK(host.signals[1].number == SIGCONT);
}

TEST_CASE_FIXTURE(Fixture, "ranks that do not obey are killed after the grace") {
  host.obeyed_signal = SIGKILL;
  host.then([](HostEvents& events) { events.on_ended(1, {0, SIGSEGV, false}); });
  const JobResult result = supervise(job(2), host, console, -1);
  CHECK(result.exit_code == 139);
  CHECK(host.signals.back().number == SIGKILL);
  CHECK(result.ending >= milliseconds(50));
  CHECK(result.ranks[0].ended_by_launcher);
}

TEST_CASE_FIXTURE(Fixture, "a rank that cannot be started ends those that were") {
  host.unstartable = 2;
  const Job three = job(3);
  const JobResult result = supervise(three, host, console, -1);
  CHECK(result.end == JobEnd::kLauncherError);
  CHECK(result.exit_code == 125);
  CHECK(result.launcher_error == "rank 2: cannot start 'x': the host is full");
  CHECK(result.ranks[0].ended);
  CHECK(result.ranks[1].ended);
}

TEST_CASE_FIXTURE(Fixture,
                  "signals come through the control pipe; its end is the launcher's death") {
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  FileDescriptor read_end(ends[0]), write_end(ends[1]);
  const auto send = [&](int number) {
    const auto byte = static_cast<unsigned char>(number);
    REQUIRE(write(write_end.number(), &byte, 1) == 1);
  };
  SUBCASE("SIGTERM") {
    send(SIGTERM);
    const JobResult result = supervise(job(2), host, console, read_end.number());
    CHECK(result.end == JobEnd::kInterrupted);
    CHECK(result.exit_code == 143);
  }
  SUBCASE("SIGUSR1 goes to the ranks alone") {
    send(SIGUSR1);
    host.obeyed_signal = SIGUSR1;
    const JobResult result = supervise(job(1), host, console, read_end.number());
    REQUIRE(!host.signals.empty());
    CHECK(host.signals[0].number == SIGUSR1);
    CHECK(host.signals[0].scope == SignalScope::kProcess);
    CHECK(result.exit_code == 128 + SIGUSR1);
  }
  SUBCASE("the launcher died") {
    write_end.reset();
    const JobResult result = supervise(job(2), host, console, read_end.number());
    CHECK(result.exit_code == 125);
    CHECK(result.launcher_error == "smp-launch itself was killed");
  }
}

TEST_CASE_FIXTURE(Fixture, "a lost host is a cause that explains itself") {
  Job four = job(4);
  four.hosts = {"a", "b"};
  four.host_of_rank = {0, 0, 1, 1};
  host.then([](HostEvents& events) {
    events.on_ended(0, code(1));
    for (int rank : {2, 3}) events.on_lost(rank, {"nothing was heard from it for 3.0 s"});
  });
  const JobResult result = supervise(four, host, console, -1);
  CHECK(result.end == JobEnd::kRankFailed);
  CHECK(result.exit_code == 125);
  const std::string text = report_text(four, result);
  CHECK(text.starts_with("smp-launch: host b was lost with ranks 2, 3, "));
  CHECK(text.find(" after the start: nothing was heard from it for 3.0 s\n"
                  "  consequence: rank 0 ended with exit code 1\n"
                  "  consequence: rank 1 ended by smp-launch\n") != text.npos);
  const std::string json = report_json(four, result);
  CHECK(json.find("\"host\": \"b\"") != json.npos);
  CHECK(json.find("\"lost\": \"nothing was heard from it for 3.0 s\"") != json.npos);
}

TEST_CASE_FIXTURE(Fixture, "errors of GPUs that were logged stand under the cause") {
  const Job two = job(2);
  host.then([](HostEvents& events) {
    ProcessEnd end = code(1);
    end.gpu_errors = {"GPU 3: Xid (PCI:0000:3b:00): 79, pid=9, GPU has fallen off the bus."};
    events.on_ended(1, end);
  });
  const JobResult result = supervise(two, host, console, -1);
  CHECK(report_text(two, result)
            .find("  meanwhile the kernel of its host has logged:\n"
                  "    GPU 3: Xid (PCI:0000:3b:00): 79, pid=9, GPU has fallen "
                  "off the bus.\n") != std::string::npos);
  CHECK(report_json(two, result).find("\"gpu_errors\": [\n      \"GPU 3: Xid (PCI:0000:3b:00)") !=
        std::string::npos);
}

TEST_CASE_FIXTURE(Fixture,
                  "blame of a rank whose host is silent waits until the host is heard of") {
  Job two = job(2);
  two.hosts = {"a", "b"};
  two.host_of_rank = {0, 1};
  host.silent = true;
  host.then([this](HostEvents& events) {
    events.on_ended(0, {1, 0, false, R"({"kind":"peer_lost","culprit":1,"message":"x"})"});
    host.later(milliseconds(500), [](HostEvents& later) { later.on_lost(1, {"gone", true}); });
  });
  const JobResult result = supervise(two, host, console, -1);
  CHECK(result.cause->rank == 1);
  CHECK(result.ranks[1].lost == "gone");
  CHECK(result.ranks[1].lost_through_other);
}

TEST_CASE_FIXTURE(Fixture, "a rank that is blamed, and says only after a while why it ended") {
  const Job two = job(2);
  host.then([](HostEvents& events) {
    events.on_ended(0, {1, 0, false, R"({"kind":"aborted","culprit":1,"message":"x"})"});
  });
  SUBCASE("itself") {
    host.own_end[1] = {7, 0, false, R"({"kind":"own","culprit":1,"message":"out of luck"})"};
    const JobResult result = supervise(two, host, console, -1);
    CHECK(result.exit_code == 7);
    CHECK(report_text(two, result).starts_with("smp-launch: rank 1 ended with exit code 7, "));
    CHECK(report_text(two, result).find("rank 1 said:\n    out of luck\n") != std::string::npos);
  }
  SUBCASE("not at all") {
    const JobResult result = supervise(two, host, console, -1);
    CHECK(result.exit_code == 1);
    CHECK(report_text(two, result).starts_with("smp-launch: rank 1 ended the job\n"));
  }
}

TEST_CASE_FIXTURE(Fixture, "a rank that another host could not start") {
  Job two = job(2);
  two.hosts = {"a", "b"};
  two.host_of_rank = {0, 1};
  host.then([](HostEvents& events) { events.on_start_failed(1, "cannot start 'x': not there"); });
  const JobResult result = supervise(two, host, console, -1);
  CHECK(result.exit_code == 125);
  CHECK(result.launcher_error == "rank 1 on host b: cannot start 'x': not there");
  CHECK(result.ranks[0].ended_by_launcher);
}

TEST_CASE_FIXTURE(Fixture, "ranks that end after a checkpoint on request have not failed") {
  const auto all_end_with_75 = [](HostEvents& events) {
    events.on_ended(0, {75, 0, false});
    events.on_ended(1, {75, 0, false});
  };
  Job two = job(2);
  SUBCASE("of a plan") {
    two.saves_on_request = true;
    host.then(all_end_with_75);
    const JobResult result = supervise(two, host, console, -1);
    CHECK(result.end == JobEnd::kCheckpointed);
    CHECK(result.exit_code == 75);
    CHECK(
        report_text(two, result) ==
        "smp-launch: saved a checkpoint and ended, as asked; go on with --resume; exit code 75\n");
    CHECK(report_json(two, result).find("\"end\": \"checkpointed\"") != std::string::npos);
  }
  SUBCASE("of a program, for which 75 is a failure like any other") {
    host.then(all_end_with_75);
    const JobResult result = supervise(two, host, console, -1);
    CHECK(result.end == JobEnd::kRankFailed);
    CHECK(result.exit_code == 75);
  }
  SUBCASE("one that fails is still a failure") {
    two.saves_on_request = true;
    host.then([](HostEvents& events) {
      events.on_ended(0, {75, 0, false});
      events.on_ended(1, {0, SIGSEGV, false});
    });
    const JobResult result = supervise(two, host, console, -1);
    CHECK(result.end == JobEnd::kRankFailed);
    CHECK(result.cause->rank == 1);
  }
}

TEST_CASE_FIXTURE(Fixture, "ranks that stand still are told, and ended where that is asked") {
  Job two = job(2);
  two.hang_limit.time = milliseconds(300);
  RankProgress at;
  at.posts = 1;
  at.step = 4;
  host.posted = {{0, at}, {1, at}};
  host.posted[0].waiting = true;
  SUBCASE("ended") {
    two.ends_on_hang = true;
    const JobResult result = supervise(two, host, console, -1);
    CHECK(result.end == JobEnd::kHang);
    CHECK(result.exit_code == 124);
    REQUIRE(result.hang);
    CHECK(result.hang->behind == std::vector<int>{1});
    CHECK(result.ranks[1].progress->step == 4);
    CHECK(one_line_cause(two, result).starts_with("no rank has gone on for "));
    CHECK(report_text(two, result).find("; the others wait for rank 1\n  rank 1 is at step 4") !=
          std::string::npos);
    CHECK(report_json(two, result).find("\"behind\": [\n      1\n    ]") != std::string::npos);
  }
  SUBCASE("told only") {
    host.later(milliseconds(900), [](HostEvents& events) {
      for (int rank : {0, 1}) events.on_ended(rank, code(0));
    });
    CHECK(supervise(two, host, console, -1).end == JobEnd::kSuccess);
  }
  SUBCASE("time in which smp-launch itself was stopped is none of theirs") {
    two.ends_on_hang = true;
    two.hang_limit.time = milliseconds(1200);
    host.then([](HostEvents&) { std::this_thread::sleep_for(milliseconds(1700)); });
    host.later(milliseconds(2000), [](HostEvents& events) {
      for (int rank : {0, 1}) events.on_ended(rank, code(0));
    });
    CHECK(supervise(two, host, console, -1).end == JobEnd::kSuccess);
  }
  SUBCASE("ranks that post nothing are left alone") {
    two.ends_on_hang = true;
    host.posted.erase(1);
    host.later(milliseconds(900), [](HostEvents& events) {
      for (int rank : {0, 1}) events.on_ended(rank, code(0));
    });
    CHECK(supervise(two, host, console, -1).end == JobEnd::kSuccess);
  }
}

TEST_CASE_FIXTURE(Fixture, "what is shown of ranks that stand still is no sign of their life") {
  const ScratchFolder folder;
  const std::string path = folder / "console";
  const FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  Console shown(file.number(), file.number());
  Job one = job(1);
  one.hang_limit.silence = milliseconds(300);
  one.hang_dump = HangDump::kGdb;
  host.stacks = [&](int process) {
    host.then([=](HostEvents& events) {
      events.on_output(process, Stream::kErr, "Thread 1\n", std::chrono::system_clock::now());
      events.on_stacks_shown(process);
    });
    // Two looks later.
    host.later(milliseconds(1200), [=](HostEvents& events) { events.on_ended(process, code(0)); });
  };
  CHECK(supervise(one, host, shown, -1).end == JobEnd::kSuccess);
  REQUIRE(shown.flush(milliseconds(60'000)));
  std::ifstream read(path);
  const std::string text{std::istreambuf_iterator<char>(read), {}};
  CHECK(text.find("Thread 1") != text.npos);
  CHECK(text.find("go on") == text.npos);
  const std::string told = "smp-launch: no rank has written anything for ";
  CHECK(text.find(told) != text.npos);
  CHECK(text.find(told) == text.rfind(told));
}

TEST_CASE_FIXTURE(Fixture, "a signal that asks for a checkpoint, and the time for it") {
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  FileDescriptor read_end(ends[0]), write_end(ends[1]);
  const unsigned char term = SIGTERM;
  REQUIRE(write(write_end.number(), &term, 1) == 1);
  Job one = job(1);
  one.saves_on_request = true;
  one.checkpoint_signals = {SIGTERM};
  one.checkpoint_grace = milliseconds(60'000);
  SUBCASE("it is saved in time") {
    host.later(milliseconds(50), [](HostEvents& events) { events.on_ended(0, code(75)); });
    CHECK(supervise(one, host, console, read_end.number()).exit_code == 75);
    REQUIRE(host.signals.size() == 1);
    CHECK(host.signals[0].number == SIGUSR1);
  }
  SUBCASE("it is not") {
    one.checkpoint_grace = milliseconds(200);
    const JobResult result = supervise(one, host, console, read_end.number());
    CHECK(result.end == JobEnd::kInterrupted);
    CHECK(result.exit_code == 143);
    CHECK(result.elapsed >= milliseconds(200));
  }
  SUBCASE("a rank fails before it is saved") {
    host.later(milliseconds(50), [](HostEvents& events) { events.on_ended(0, code(3)); });
    const JobResult result = supervise(one, host, console, read_end.number());
    CHECK(result.end == JobEnd::kRankFailed);
    CHECK(result.end_signal == SIGTERM);
    CHECK(report_text(one, result)
              .find("  SIGTERM asked for a checkpoint, which may not be saved\n") !=
          std::string::npos);
  }
  SUBCASE("a second one ends the job") {
    one.checkpoint_grace.reset();
    REQUIRE(write(write_end.number(), &term, 1) == 1);
    CHECK(supervise(one, host, console, read_end.number()).exit_code == 143);
  }
}

TEST_CASE("a console that nobody reads holds the output back, then drops it and says so") {
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  FileDescriptor read_end(ends[0]), write_end(ends[1]);
  Console console(write_end.number(), write_end.number());
  const std::string line(1023, 'x');
  int lines = 0;
  while (!console.full()) {
    console.write(Stream::kOut, line + "\n");
    ++lines;
  }
  CHECK(lines > 8000);
  CHECK(!console.stalled());
  CHECK(!console.flush(milliseconds(20)));
  read_end.reset();  // the reader goes: everything that waited is let go
  CHECK(console.flush(milliseconds(2000)));
  CHECK(!console.full());
}
