#include "smp/launcher/supervision/supervisor.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "launcher/scripted_host.h"
#include "scratch_folder.h"
#include "smp/launcher/hosts/duration.h"
#include "smp/launcher/supervision/report.h"

using namespace smp;
using namespace smp::hosts;
using namespace smp::job;
using namespace smp::output;
using namespace smp::process;
using namespace smp::supervision;
using namespace smp::system;
using std::chrono::milliseconds;

TEST_CASE_FIXTURE(SupervisedJob, "all ranks end well") {
  for (int rank : {1, 0}) host.then([=](HostEvents& events) { events.on_ended(rank, code(0)); });
  const LaunchJob two = job(2);
  const JobResult result = supervise(two, host, console, -1);
  CHECK(result.end == JobEnd::kSuccess);
  CHECK(result.exit_code == 0);
  CHECK(host.signals.empty());
  CHECK(report_text(two, result) == "");
}

TEST_CASE_FIXTURE(SupervisedJob, "the others get SIGTERM, and SIGCONT in case they are stopped") {
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

TEST_CASE_FIXTURE(SupervisedJob, "ranks that do not obey are killed after the grace") {
  host.obeyed_signal = SIGKILL;
  host.then([](HostEvents& events) { events.on_ended(1, {0, SIGSEGV, false}); });
  const JobResult result = supervise(job(2), host, console, -1);
  CHECK(result.exit_code == 139);
  CHECK(host.signals.back().number == SIGKILL);
  CHECK(result.ending >= milliseconds(50));
  CHECK(result.ranks[0].ended_by_launcher);
}

TEST_CASE_FIXTURE(SupervisedJob, "a second signal kills, and the report says after what time") {
  int ends[2];
  REQUIRE(pipe2(ends, O_NONBLOCK | O_CLOEXEC) == 0);
  const FileDescriptor control(ends[0]), told(ends[1]);
  LaunchJob two = job(2);
  two.rules.grace = milliseconds(60'000);
  host.obeyed_signal = SIGKILL;
  const auto interrupt = [&](HostEvents&) {
    const unsigned char number = SIGINT;
    CHECK(write(told.number(), &number, 1) == 1);
  };
  host.then(interrupt);
  host.later(milliseconds(120), interrupt);
  const JobResult result = supervise(two, host, console, control.number());
  REQUIRE(result.killed_after);
  CHECK(*result.killed_after > milliseconds(0));  // a busy machine hears the first signal late
  CHECK(*result.killed_after < milliseconds(30'000));
  CHECK(report_text(two, result)
            .find(fmt::format("ranks 0, 1 killed by smp-launch, {} after the request to end\n",
                              duration_text(*result.killed_after))) != std::string::npos);
}

TEST_CASE_FIXTURE(SupervisedJob,
                  "a rank that somebody else kills meanwhile is not said to be killed") {
  host.own_end = {{0, {0, SIGKILL, false}}};
  host.then([](HostEvents& events) { events.on_ended(1, code(1)); });
  const LaunchJob two = job(2);
  const std::string text = report_text(two, supervise(two, host, console, -1));
  CHECK(text.find("rank 0 was killed by SIGKILL (Killed) while smp-launch ended the job\n") !=
        std::string::npos);
}

TEST_CASE_FIXTURE(SupervisedJob, "a rank that may not be signalled does not hang in the kernel") {
  JobResult result;
  result.end = JobEnd::kTimeout;
  result.timeout = milliseconds(1000);
  result.ranks.resize(2);
  result.ranks[0].not_permitted = true;
  const std::string text = report_text(job(2), result);
  CHECK(text.find("rank 0 did not end: its process has changed its user (setuid, sudo), so "
                  "smp-launch has no permission to signal it\n") != std::string::npos);
  CHECK(text.find("rank 1 did not end after SIGKILL: hung inside the kernel\n") !=
        std::string::npos);
  CHECK(text.find("smp-launch: 0 of 2 ranks ended in ") != std::string::npos);
}

TEST_CASE_FIXTURE(SupervisedJob, "a rank that cannot be started ends those that were") {
  host.unstartable = 2;
  const LaunchJob three = job(3);
  const JobResult result = supervise(three, host, console, -1);
  CHECK(result.end == JobEnd::kLauncherError);
  CHECK(result.exit_code == 125);
  CHECK(result.launcher_error == "rank 2: cannot start 'x': the host is full");
  CHECK(result.ranks[0].ended);
  CHECK(result.ranks[1].ended);
}

TEST_CASE_FIXTURE(SupervisedJob,
                  "signals come through the control pipe: its end is the launcher's death") {
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
  SUBCASE("SIGCONT goes to all that a rank has started") {
    send(SIGCONT);
    host.obeyed_signal = SIGCONT;
    supervise(job(1), host, console, read_end.number());
    REQUIRE(!host.signals.empty());
    CHECK(host.signals[0].number == SIGCONT);
    CHECK(host.signals[0].scope == SignalScope::kGroup);
  }
  SUBCASE("the launcher died") {
    write_end.reset();
    const JobResult result = supervise(job(2), host, console, read_end.number());
    CHECK(result.exit_code == 125);
    CHECK(result.launcher_error == "smp-launch itself was killed");
  }
}

TEST_CASE_FIXTURE(SupervisedJob, "a lost host is a cause that explains itself") {
  LaunchJob four = job(4);
  four.hosts = {"a", "b"};
  four.host_of_rank = {0, 0, 1, 1};
  host.then([](HostEvents& events) {
    events.on_ended(0, code(1));
    for (int rank : {2, 3}) events.on_lost(rank, {"no heartbeat for 3.0 s"});
  });
  const JobResult result = supervise(four, host, console, -1);
  CHECK(result.end == JobEnd::kRankFailed);
  CHECK(result.exit_code == 125);
  const std::string text = report_text(four, result);
  CHECK(text.starts_with("smp-launch: host b was lost with ranks 2, 3, "));
  CHECK(text.find(" after the start: no heartbeat for 3.0 s\n  consequence: rank 0 ended with exit "
                  "code 1\n  consequence: rank 1 ended by smp-launch\n") != text.npos);
  const std::string json = report_json(four, result);
  CHECK(json.find("\"host\": \"b\"") != json.npos);
  CHECK(json.find("\"lost\": \"no heartbeat for 3.0 s\"") != json.npos);
}

// As a program does that leaves no error file and tidies up before it ends: the others, whose
// connections it has closed, are faster.
TEST_CASE_FIXTURE(SupervisedJob,
                  "a rank that says that it lost a peer ends before the one to blame") {
  const LaunchJob three = job(3);
  const std::string words = "RuntimeError: [pair.cc:534] Connection closed by peer [10.0.0.3]:4\n";
  host.then([this, words](HostEvents& events) {
    events.on_ended(0, code(1));
    events.on_output(0, Stream::kErr, words, std::chrono::system_clock::now());
    host.then([](HostEvents& next) {
      ProcessEnd end = code(3);
      end.pid = 4711;
      next.on_ended(2, end);
    });
  });
  host.posted[2].step = 312;
  host.posted[2].phase = "forward";
  const JobResult result = supervise(three, host, console, -1);
  CHECK(result.cause->rank == 2);
  CHECK(result.exit_code == 3);
  const std::string text = report_text(three, result);
  CHECK(text.find("  process 4711, local rank 2, at step 312: forward\n"
                  "  rank 2 wrote nothing to its standard error\n"
                  "  consequence: rank 0 ended with exit code 1: connection to another rank "
                  "lost\n"
                  "  consequence: rank 1 ended by smp-launch\n") != text.npos);
  CHECK(report_json(three, result).find("\"pid\": 4711") != std::string::npos);
}

TEST_CASE_FIXTURE(SupervisedJob,
                  "ranks that only say that they lost a peer: the first, and so it is told") {
  const LaunchJob two = job(2);
  host.then([](HostEvents& events) {
    for (int rank : {1, 0}) {
      events.on_output(rank, Stream::kErr, "Connection reset by peer\n", {});
      events.on_ended(rank, code(1));
    }
  });
  const JobResult result = supervise(two, host, console, -1);
  CHECK(result.cause->rank == 1);
  CHECK(report_text(two, result)
            .find("  these lines report a lost connection to another rank, but no other rank is "
                  "known to have failed\n") != std::string::npos);
}

// Its error is kOwn to torch, whatever it says.
TEST_CASE_FIXTURE(SupervisedJob,
                  "a rank whose file of torch tells of a lost peer is a consequence") {
  const LaunchJob two = job(2);
  host.then([this](HostEvents& events) {
    ProcessEnd end = code(1);
    end.last_words = R"({"message": {"message": "RuntimeError: Connection closed by peer"}})";
    events.on_ended(0, end);
    host.then([](HostEvents& next) { next.on_ended(1, code(3)); });
  });
  const JobResult result = supervise(two, host, console, -1);
  CHECK(result.cause->rank == 1);
  CHECK(result.exit_code == 3);
}

// Their last lines are read when all have ended.
TEST_CASE_FIXTURE(SupervisedJob, "words that come after all ranks have ended count too") {
  const LaunchJob two = job(2);
  host.then([this](HostEvents& events) {
    events.on_ended(0, code(1));
    events.on_ended(1, code(3));
    host.at_finish = [](HostEvents& last) {
      last.on_output(0, Stream::kErr, "Connection reset by peer\n", {});
    };
  });
  const JobResult result = supervise(two, host, console, -1);
  CHECK(result.cause->rank == 1);
  CHECK(result.exit_code == 3);
}

TEST_CASE_FIXTURE(SupervisedJob,
                  "what a rank's control group may have is told when memory ran out") {
  const LaunchJob two = job(2);
  ProcessEnd end{0, SIGKILL, false};
  end.out_of_memory = true;
  SUBCASE("a limit") { end.memory_limit_bytes = 256 << 20; }
  SUBCASE("none") {}
  host.then([end](HostEvents& events) { events.on_ended(1, end); });
  const JobResult result = supervise(two, host, console, -1);
  const bool limited = end.memory_limit_bytes != 0;
  CHECK(report_text(two, result)
            .find(limited ? "  its control group (256 MiB) or its host ran out of memory (see "
                            "dmesg): use smaller batches, or allow more memory\n"
                          : "  its control group or its host ran out of memory (see ") !=
        std::string::npos);
  CHECK((report_json(two, result).find("\"memory_limit_bytes\": 268435456") != std::string::npos) ==
        limited);
}

TEST_CASE_FIXTURE(SupervisedJob, "errors of GPUs that were logged stand under the cause") {
  const LaunchJob two = job(2);
  host.then([](HostEvents& events) {
    ProcessEnd end = code(1);
    end.gpu_errors = {"GPU 3: Xid (PCI:0000:3b:00): 79, pid=9, GPU has fallen off the bus."};
    events.on_ended(1, end);
  });
  const JobResult result = supervise(two, host, console, -1);
  CHECK(report_text(two, result)
            .find("  GPU errors in the kernel log of its host:\n    GPU 3: Xid (PCI:0000:3b:00): "
                  "79, pid=9, GPU has fallen off the bus.\n") != std::string::npos);
  CHECK(report_json(two, result).find("\"gpu_errors\": [\n      \"GPU 3: Xid (PCI:0000:3b:00)") !=
        std::string::npos);
}

TEST_CASE_FIXTURE(SupervisedJob,
                  "blame of a rank whose host is silent waits until the host is heard of") {
  LaunchJob two = job(2);
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

TEST_CASE_FIXTURE(SupervisedJob,
                  "a rank that is blamed, and says only after a while why it ended") {
  const LaunchJob two = job(2);
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

TEST_CASE_FIXTURE(SupervisedJob, "a rank that another host could not start") {
  LaunchJob two = job(2);
  two.hosts = {"a", "b"};
  two.host_of_rank = {0, 1};
  host.then([](HostEvents& events) { events.on_start_failed(1, "cannot start 'x': not there"); });
  const JobResult result = supervise(two, host, console, -1);
  CHECK(result.exit_code == 125);
  CHECK(result.launcher_error == "rank 1 on host b: cannot start 'x': not there");
  CHECK(result.ranks[0].ended_by_launcher);
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

namespace {

// A log whose file system stands still until somebody lets it go on: a pipe that is full.
class StalledLog {
 public:
  StalledLog() : path(folder_ / "log") {
    REQUIRE(mkfifo(path.c_str(), 0600) == 0);
    pipe_ = FileDescriptor(open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
    const std::string filling(4096, 'x');
    while (write(pipe_.number(), filling.data(), filling.size()) > 0) filled_ += filling.size();
  }

  void go_on() {
    std::string bytes(filled_, ' ');
    REQUIRE(read(pipe_.number(), bytes.data(), bytes.size()) > 0);
  }
  std::string text() {
    std::string bytes(1 << 20, ' ');
    const ssize_t size = read(pipe_.number(), bytes.data(), bytes.size());
    bytes.resize(static_cast<size_t>(std::max<ssize_t>(size, 0)));
    return bytes;
  }

 private:
  ScratchFolder folder_;
  FileDescriptor pipe_;
  size_t filled_ = 0;

 public:
  const std::string path;
};

}  // namespace

TEST_CASE_FIXTURE(
    SupervisedJob,
    "a log whose file system stands still holds up nothing else, and is whole at the end") {
  StalledLog log;
  LaunchJob one = job(1);
  one.files[0].out_log = log.path;
  one.files[0].err_log = "/dev/null";
  // Each dispatch is a time at which hosts are talked with. Where a write held it up, nobody would
  // let the log go on.
  int talks = 0;
  ScriptedHost::Step talk = [&](HostEvents& events) {
    if (++talks == 200) log.go_on();
    if (talks == 400) return events.on_ended(0, code(0));
    events.on_output(0, Stream::kOut, "line\n", std::chrono::system_clock::now());
    host.then(talk);
  };
  host.then(talk);
  const JobResult result = supervise(one, host, console, -1);
  CHECK(result.exit_code == 0);
  std::string expected;
  for (int i = 0; i < 399; ++i) expected += "line\n";
  CHECK(log.text() == expected);
}

TEST_CASE_FIXTURE(SupervisedJob,
                  "Ctrl-C ends the waiting for a log that nobody can write any more") {
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  const FileDescriptor read_end(ends[0]), write_end(ends[1]);
  StalledLog log;
  LaunchJob one = job(1);
  one.files[0].out_log = log.path;
  one.files[0].err_log = "/dev/null";
  host.then([](HostEvents& events) {
    events.on_output(0, Stream::kOut, "line\n", std::chrono::system_clock::now());
    events.on_ended(0, code(0));
  });
  host.at_finish = [&](HostEvents&) {
    const unsigned char number = SIGINT;
    REQUIRE(write(write_end.number(), &number, 1) == 1);
  };
  const JobResult result = supervise(one, host, console, read_end.number());
  CHECK(result.exit_code == 125);
  CHECK(result.launcher_error == "the logs are incomplete: their file system does not answer");
  log.go_on();
}
