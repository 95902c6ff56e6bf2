#include "smp/launcher/run/run_status.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "files_and_errors.h"
#include "scratch_folder.h"
#include "smp/launcher/run/status_board.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/system/file_descriptor.h"
#include "smp/plan/text/json.h"

using namespace smp;
using namespace smp::job;
using namespace smp::run;
using namespace smp::runinfo;
using namespace smp::system;
using namespace smp::text;
using std::chrono::milliseconds;

namespace {

const std::chrono::system_clock::time_point kNoon{std::chrono::seconds(1'795'262'400)};

RunStatus training() {
  RunStatus status;
  status.job_id = "0123abcd";
  status.state = "running";
  status.host = "node1";
  status.process = 77;
  status.began = kNoon;
  status.updated = kNoon + std::chrono::seconds(90);
  status.start = 2;
  status.max_restarts = 3;
  status.view.ranks = 8;
  status.view.running = 8;
  status.view.slowest_step = 21;
  RankProgress progress;
  progress.step = 21;
  progress.phase = "forward";
  progress.steps_done = 20;
  progress.steps = 200;
  progress.loss = 2.7312;
  progress.tokens_per_s = 12345.4;
  progress.step_s = 0.5;
  status.view.progress = progress;
  status.last_event = "rank 3 was stopped";
  return status;
}

}  // namespace

TEST_CASE("a run's status in a line, cut to the terminal") {
  CHECK(status_line(training(), 200) ==
        "8/8 ranks  step 20/200  loss 2.7312  12345 tokens/s  1 min 30 s left  1 restart");
  CHECK(status_line(training(), 21) == "8/8 ranks  step 20/2");
  RunStatus early = training();
  early.start = 1;
  early.view.progress->steps_done = 0;
  CHECK(status_line(early, 200) == "8/8 ranks  forward");
  early.view.progress.reset();
  CHECK(status_line(early, 200) == "8/8 ranks");
}

TEST_CASE("a run's status goes through its file, and is told in words") {
  const RunStatus status = parse_status("x", status_json(training()));
  const auto now = kNoon + std::chrono::seconds(100);
  CHECK(status_text(status, Watcher::kRuns, now) ==
        "job 0123abcd: running for 1 min 40 s (process 77 on node1)\n"
        "  ranks     8 of 8 running\n"
        "  training  step 20/200, loss 2.7312, 12345 tokens/s, 1 min 30 s left\n"
        "  restarts  1 of 3\n"
        "  last      rank 3 was stopped\n");
  CHECK(status_text(status, Watcher::kGone, now)
            .starts_with("job 0123abcd: its smp-launch (process 77 on node1) has ended without a "
                         "report; last status 10.0 s ago\n  ranks     8 of 8 were running\n"));
  CHECK(status_text(status, Watcher::kSilent, now)
            .starts_with("job 0123abcd: running at its last status, 10.0 s ago: its smp-launch "
                         "(process 77 on node1) is stopped, has ended, or cannot write here\n"));
  RunStatus hung = training();
  hung.view.silent = std::chrono::seconds(70);
  hung.view.progress->loss = std::numeric_limits<double>::quiet_NaN();
  const RunStatus again = parse_status("x", status_json(hung));
  CHECK(std::isnan(again.view.progress->loss));
  CHECK(status_text(again, Watcher::kRuns, now)
            .find("  no rank has made progress for 1 min 10 s\n") != std::string::npos);
  hung.state = "ended";
  hung.exit_code = 3;
  CHECK(status_text(hung, Watcher::kGone, now)
            .starts_with("job 0123abcd: ended 10.0 s ago, exit code 3\n"));
  CHECK_THROWS_AS(parse_status("x", "{}"), ConfigError);
  CHECK_THROWS_AS(parse_status("x", "no json"), ConfigError);
}

TEST_CASE("a status that somebody else has written is refused by its key, not by chance") {
  const std::string good = status_json(RunStatus{});
  CHECK(parse_status("s", good).start == 1);
  const auto refused = [&](const char* key, const std::string& value) {
    auto json = OrderedJson::parse(good);
    json[key] = OrderedJson::parse(value);
    CHECK_THROWS_WITH_AS(
        parse_status("s", json.dump()),
        doctest::Contains(
            fmt::format("'s' is not the status of a run: '{}' is not a whole number from 0 to ",
                        key)
                .c_str()),
        ConfigError);
  };
  refused("process", "-1");
  refused("process", "4294967297");
  refused("began_ms", "9223372036854775807");
  refused("silent_ms", "-9223372036854775808");
  refused("ranks", "1e300");
  refused("start", "\"one\"");
}

TEST_CASE("a run's figures for Prometheus, and an event as a line") {
  const std::string text = prometheus_text(training());
  CHECK(text.find("# HELP smp_loss Loss of the last step.\n# TYPE smp_loss gauge\n"
                  "smp_loss{job=\"0123abcd\"} 2.7312\n") != text.npos);
  CHECK(text.find("smp_restarts{job=\"0123abcd\"} 1\n") != text.npos);
  CHECK(event_json({"rank_ended", 3, "ended with exit code 1"}, 2, kNoon) ==
        "{\"time\":\"2026-11-21T12:00:00.000Z\",\"event\":\"rank_ended\",\"start\":2,\"rank\":3,"
        "\"text\":\"ended with exit code 1\"}\n");
}

TEST_CASE("a board whose files cannot be written says so once, and tries again") {
  const ScratchFolder folder;
  BoardPlaces places;
  places.status_file = folder / "run/status.json";
  std::string shown;
  places.show_line = [&](const std::string& line) { shown = line; };
  places.columns = [] { return 80; };
  StatusBoard board(places, 0);
  board.begin_start("0123", 1, 4);
  std::string trouble;
  while (trouble.empty()) trouble = board.take_trouble();  // it is written by another thread
  CHECK(trouble == places.status_file + ": cannot be written: No such file or directory");
  JobView view;
  view.ranks = view.running = 4;
  board.on_look(view);
  CHECK(shown == "4/4 ranks");
  board.set_state("waiting");
  CHECK(board.take_trouble() == "");
  std::filesystem::create_directory(folder / "run");
  board.end(0);
  CHECK(board.take_trouble() == "");
  CHECK(std::filesystem::exists(places.status_file));
}

// A file whose file system stands still: a pipe that is full.
TEST_CASE("a board whose file system stands still holds nobody up, and then shows what is newest") {
  const ScratchFolder folder;
  BoardPlaces places;
  places.status_file = folder / "status.json";
  places.events_file = folder / "events.jsonl";
  REQUIRE(mkfifo(places.events_file.c_str(), 0600) == 0);
  const FileDescriptor pipe(open(places.events_file.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  std::string events(64 << 10, ' ');
  REQUIRE(write(pipe.number(), events.data(), events.size()) == std::ssize(events));
  StatusBoard board(places, 0);
  board.begin_start("0123", 1, 4);
  for (int i = 0; i < 100; ++i) board.on_event({"signal", {}, fmt::format("number {}", i)});
  board.set_state("waiting");
  CHECK(!std::filesystem::exists(places.status_file));
  REQUIRE(read(pipe.number(), events.data(), events.size()) == std::ssize(events));
  board.end(7);
  CHECK(board.take_trouble() == "");
  const RunStatus last = parse_status("last", text_of(places.status_file));
  CHECK(last.job_id == "0123");
  CHECK(last.state == "ended");
  CHECK(last.exit_code == 7);
  events.resize(static_cast<size_t>(read(pipe.number(), events.data(), events.size())));
  CHECK(std::count(events.begin(), events.end(), '\n') == 102);
  CHECK(events.find("number 98") < events.find("number 99"));
}
