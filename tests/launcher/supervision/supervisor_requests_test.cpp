#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "launcher/scripted_host.h"
#include "scratch_folder.h"
#include "smp/launcher/supervision/report.h"

// Jobs that are asked for a checkpoint, and jobs that stand still.

using namespace smp;
using namespace smp::job;
using namespace smp::output;
using namespace smp::runinfo;
using namespace smp::supervision;
using namespace smp::system;
using std::chrono::milliseconds;

TEST_CASE_FIXTURE(SupervisedJob, "ranks that end after a checkpoint on request have not failed") {
  const auto all_end_with_75 = [](HostEvents& events) {
    events.on_ended(0, {75, 0, false});
    events.on_ended(1, {75, 0, false});
  };
  LaunchJob two = job(2);
  SUBCASE("of a plan") {
    two.saves_on_request = true;
    host.then(all_end_with_75);
    const JobResult result = supervise(two, host, console, -1);
    CHECK(result.end == JobEnd::kCheckpointed);
    CHECK(result.exit_code == 75);
    CHECK(report_text(two, result) ==
          "smp-launch: saved a checkpoint and ended on request; resume with --resume; exit code "
          "75\n");
    CHECK(report_json(two, result).find("\"end\": \"checkpointed\"") != std::string::npos);
    two.requeue = "scontrol requeue 7";
    CHECK(report_text(two, result)
              .ends_with("exit code 75\nsmp-launch: to start the job again: "
                         "scontrol requeue 7\n"));
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

TEST_CASE_FIXTURE(SupervisedJob, "another host's signal asks all ranks for a checkpoint, once") {
  LaunchJob two = job(2);
  two.saves_on_request = true;
  two.rules.checkpoint_signals = {SIGTERM};
  host.obeyed_signal = SIGUSR1;
  host.own_end = {{0, {75, 0, false}}, {1, {75, 0, false}}};
  const auto asked = [&] {
    std::vector<int> ranks;
    for (const auto& sent : host.signals)
      if (sent.number == SIGUSR1) ranks.push_back(sent.process);
    return ranks;
  };
  SUBCASE("told by one, by another, and here as well") {
    int ends[2];
    REQUIRE(pipe2(ends, O_NONBLOCK | O_CLOEXEC) == 0);
    const FileDescriptor control(ends[0]), told(ends[1]);
    host.then([&](HostEvents& events) {
      events.on_signalled(SIGTERM, "b");
      events.on_signalled(SIGTERM, "c");
      const unsigned char numbers[] = {SIGUSR2, SIGTERM};
      CHECK(write(told.number(), numbers, 2) == 2);
    });
    const JobResult result = supervise(two, host, console, control.number());
    CHECK(result.end == JobEnd::kCheckpointed);
    CHECK(result.exit_code == 75);
    CHECK(asked() == std::vector<int>{0, 1});
  }
  SUBCASE("of a program, or by another signal: it is for its host alone") {
    two.saves_on_request = false;
    host.then([](HostEvents& events) {
      events.on_signalled(SIGTERM, "b");
      for (int rank : {0, 1}) events.on_ended(rank, {0, 0, false});
    });
    CHECK(supervise(two, host, console, -1).end == JobEnd::kSuccess);
    CHECK(asked().empty());
  }
}

TEST_CASE_FIXTURE(SupervisedJob, "ranks that stand still are told, and ended where that is asked") {
  LaunchJob two = job(2);
  two.rules.hang_limit.time = milliseconds(300);
  RankProgress at;
  at.posts = 1;
  at.step = 4;
  host.posted = {{0, at}, {1, at}};
  host.posted[0].waiting = true;
  SUBCASE("ended") {
    two.rules.ends_on_hang = true;
    const JobResult result = supervise(two, host, console, -1);
    CHECK(result.end == JobEnd::kHang);
    CHECK(result.exit_code == 124);
    REQUIRE(result.hang);
    CHECK(result.hang->behind == std::vector<int>{1});
    CHECK(result.ranks[1].progress->step == 4);
    CHECK(one_line_cause(two, result).starts_with("no rank has made progress for "));
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
    two.rules.ends_on_hang = true;
    two.rules.hang_limit.time = milliseconds(1200);
    host.then([](HostEvents&) { std::this_thread::sleep_for(milliseconds(1700)); });
    host.later(milliseconds(2000), [](HostEvents& events) {
      for (int rank : {0, 1}) events.on_ended(rank, code(0));
    });
    CHECK(supervise(two, host, console, -1).end == JobEnd::kSuccess);
  }
  SUBCASE("ranks that post nothing are left alone") {
    two.rules.ends_on_hang = true;
    host.posted.erase(1);
    host.later(milliseconds(900), [](HostEvents& events) {
      for (int rank : {0, 1}) events.on_ended(rank, code(0));
    });
    CHECK(supervise(two, host, console, -1).end == JobEnd::kSuccess);
  }
}

TEST_CASE_FIXTURE(SupervisedJob,
                  "what is shown of ranks that stand still is no sign of their life") {
  const ScratchFolder folder;
  const std::string path = folder / "console";
  const FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  Console shown(file.number(), file.number());
  LaunchJob one = job(1);
  one.rules.hang_limit.output_timeout = milliseconds(300);
  one.rules.hang_dump = HangDump::kGdb;
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

TEST_CASE_FIXTURE(SupervisedJob, "a signal that asks for a checkpoint, and the time for it") {
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  FileDescriptor read_end(ends[0]), write_end(ends[1]);
  const unsigned char term = SIGTERM;
  REQUIRE(write(write_end.number(), &term, 1) == 1);
  LaunchJob one = job(1);
  one.saves_on_request = true;
  one.rules.checkpoint_signals = {SIGTERM};
  one.rules.checkpoint_grace = milliseconds(60'000);
  SUBCASE("it is saved in time") {
    host.later(milliseconds(50), [](HostEvents& events) { events.on_ended(0, code(75)); });
    CHECK(supervise(one, host, console, read_end.number()).exit_code == 75);
    REQUIRE(host.signals.size() == 1);
    CHECK(host.signals[0].number == SIGUSR1);
  }
  SUBCASE("it is not") {
    one.rules.checkpoint_grace = milliseconds(200);
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
              .find("  SIGTERM asked for a checkpoint, but the job failed: the checkpoint is "
                    "possibly not saved\n") != std::string::npos);
  }
  SUBCASE("a second one ends the job") {
    one.rules.checkpoint_grace.reset();
    REQUIRE(write(write_end.number(), &term, 1) == 1);
    CHECK(supervise(one, host, console, read_end.number()).exit_code == 143);
  }
}
