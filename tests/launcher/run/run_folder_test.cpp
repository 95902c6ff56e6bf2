#include "smp/launcher/run/run_folder.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "files_and_errors.h"
#include "scratch_folder.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/text/json.h"

namespace smp {
namespace {

namespace fs = std::filesystem;

std::string not_empty(const std::string& path) {
  return "run folder '" + path +
         "' is not empty: give another folder with --run-dir, remove this folder, or resume from "
         "its checkpoint with --resume";
}

void put(const std::string& path, const std::string& text) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path) << text;
}

// As ranks that are ready leave it, with a checkpoint.
void leave_run(const std::string& path) {
  put(path + "/plan.yaml", "plan");
  put(path + "/logs/rank-0.out", "");
  put(path + "/checkpoints/step-00000002/manifest.json", "{}");
  put(path + "/checkpoints/latest", "step-00000002\n");
}

text::Json holder_of(const std::string& folder) {
  return text::Json::parse(text_of(folder + "/lock"));
}

}  // namespace

TEST_CASE("run folders") {
  ScratchFolder folder;
  {
    const run::RunFolder run = run::RunFolder::create(folder / "a/b");
    CHECK(run.files_of(12).error_file == (folder / "a/b/errors/rank-12.json"));
    run.begin_start();
    CHECK(fs::is_directory(folder / "a/b/logs"));
    put(run.log("rank-0.out"), "");
  }
  CHECK(run::RunFolder::why_not(folder / "a/b") == "");  // its ranks could not be started
  put(folder / "a/b/logs/rank-0.out", "x");
  CHECK(error_of([&] { run::RunFolder::create(folder / "a/b"); }) == not_empty(folder / "a/b"));
  CHECK(run::RunFolder::why_not(folder / "c") == "");
  CHECK(!fs::exists(folder / "c"));
  CHECK(error_of([&] { run::RunFolder::create("/proc/x"); }) ==
        "cannot create run folder '/proc/x': No such file or directory");
  fs::create_directory(folder / "empty");
  CHECK(run::RunFolder::why_not(folder / "empty") == "");
}

TEST_CASE("a folder in which no rank has started is as it was") {
  ScratchFolder folder;
  put(folder / "user.yaml", "plan");
  {
    const run::RunFolder run = run::RunFolder::create(folder / "a/b/c");
    run.lay_plan(folder / "user.yaml");
    CHECK(run.plan_to_start() == folder / "a/b/c/plan.yaml.new");
  }
  CHECK(!fs::exists(folder / "a"));
  fs::create_directory(folder / "mine");
  { run::RunFolder::create(folder / "mine").lay_plan(folder / "user.yaml"); }
  CHECK(fs::is_empty(folder / "mine"));
  CHECK_THROWS(run::RunFolder::create(folder / "b/\xff\xff/" + std::string(300, 'x')));
  CHECK(!fs::exists(folder / "b"));
}

TEST_CASE("ranks that never were ready leave a folder that the next start takes") {
  ScratchFolder folder;
  put(folder / "user.yaml", "plan");
  const std::string path = folder / "run";
  {
    const run::RunFolder run = run::RunFolder::create(path);
    run.lay_plan(folder / "user.yaml");
    run.begin_start();
    put(run.log("rank-0.err"), "no data\n");
    put(run.status(), "{}");
  }
  CHECK(run::RunFolder::why_not(path) == "");
  CHECK(run::RunFolder::why_not_go_on(path) == "");
  CHECK(run::RunFolder::create(path).path() == path);
  put(path + "/notes.txt", "somebody's own");
  CHECK(run::RunFolder::why_not(path) == not_empty(path));
  fs::remove(path + "/notes.txt");
  fs::rename(path + "/plan.yaml.new", path + "/plan.yaml");  // as rank 0 does
  CHECK(run::RunFolder::why_not(path) == not_empty(path));
}

TEST_CASE("a run that others start again has its folder, with a checkpoint or without") {
  const ScratchFolder folder;
  put(folder / "run/plan.yaml", "plan");
  put(folder / "run/logs/rank-0.out", "");
  put(folder / "run/metrics.jsonl", "{}");
  CHECK(run::RunFolder::go_on(folder / "run").checkpoint() == "");
  CHECK(fs::exists(folder / "run/metrics.jsonl"));  // until its ranks are ready
  CHECK(run::RunFolder::why_not(folder / "run") != "");
  put(folder / "plan.yaml", "a folder of something else");
  CHECK(error_of([&] { run::RunFolder::go_on(folder.path()); }) == not_empty(folder.path()));
}

TEST_CASE("a run folder is reopened for its checkpoint alone") {
  ScratchFolder folder;
  const std::string path = folder / "run";
  CHECK(error_of([&] { run::RunFolder::reopen(folder / "none"); }) ==
        "cannot resume in run folder '" + (folder / "none") + "': the folder does not exist");
  put(path + "/logs/rank-0.out", "");
  CHECK(run::RunFolder::why_not_reopen(path) ==
        "cannot resume in run folder '" + path +
            "': the folder has no checkpoint; start in another folder without --resume");
  leave_run(path);
  put(path + "/errors/rank-0.json", "{}");
  put(path + "/timeline/rank-0.json", "{}");
  const run::RunFolder run = run::RunFolder::reopen(path);
  CHECK(run.path() == path);
  CHECK(run.checkpoint() == "step-00000002");
  CHECK(fs::exists(run.files_of(0).error_file));  // nothing has changed
  run.begin_start();
  CHECK(!fs::exists(run.files_of(0).error_file));
  CHECK(fs::is_directory(path + "/errors"));
  CHECK(!fs::exists(path + "/timeline"));
}

TEST_CASE("whole checkpoints are never begun anew over, with `latest` or without") {
  ScratchFolder folder;
  const std::string path = folder / "run";
  leave_run(path);
  fs::remove(path + "/checkpoints/latest");
  CHECK(run::RunFolder::go_on(path).checkpoint() == "step-00000002");
  CHECK(run::RunFolder::reopen(path).checkpoint() == "step-00000002");
  put(path + "/checkpoints/latest", "step-00000009\n");
  CHECK(run::RunFolder::why_not_reopen(path) ==
        "cannot resume in run folder '" + path + "': " + path +
            "/checkpoints/latest: names 'step-00000009', which is not a complete checkpoint; "
            "resume from the newest complete checkpoint with --resume=2");
}

TEST_CASE("names by default do not collide") {
  ScratchFolder folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  {
    const run::RunFolder one = run::RunFolder::create_for("gpt"),
                         other = run::RunFolder::create_for("gpt");
    CHECK(one.path().starts_with(folder / "runs/gpt-2"));
    CHECK(one.path() != other.path());
  }
  CHECK(!fs::exists(folder / "runs"));
  fs::current_path(before);
}

TEST_CASE("a second one in a run's folder is refused by host, process and time") {
  ScratchFolder folder;
  const std::string path = folder / "run";
  leave_run(path);
  std::optional<run::RunFolder> run = run::RunFolder::reopen(path);
  const text::Json holder = holder_of(path);
  CHECK(holder.at("process") == getpid());
  const std::string refusal =
      fmt::format("run folder '{}' is in use by smp-launch, process {} on host {}, since ", path,
                  getpid(), holder.at("host").get<std::string>());
  const std::string help =
      " UTC: wait until this job has ended, stop this job, or give another folder with --run-dir";
  for (const std::string& why :
       {error_of([&] { run::RunFolder::reopen(path); }),
        error_of([&] { run::RunFolder::go_on(path); }),
        error_of([&] { run::RunFolder::create(path); }), run::RunFolder::why_not_reopen(path),
        run::RunFolder::why_not(path)}) {
    CHECK(why.starts_with(refusal));
    CHECK(why.ends_with(help));
  }
  run.reset();
  CHECK(!fs::exists(path + "/lock"));
  CHECK(run::RunFolder::reopen(path).path() == path);
}

TEST_CASE("a lock lives while one of the processes does, and goes with them") {
  ScratchFolder folder;
  const std::string path = folder / "run";
  leave_run(path);
  int told[2];
  REQUIRE(pipe(told) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const run::RunFolder run = run::RunFolder::reopen(path);
    const pid_t second = fork();  // as the supervisor is
    if (second == 0) {
      pause();
      _exit(0);
    }
    (void)!write(told[1], &second, sizeof second);
    pause();
    _exit(0);
  }
  pid_t second = 0;
  REQUIRE(read(told[0], &second, sizeof second) == sizeof second);
  CHECK(run::RunFolder::why_not_reopen(path) != "");
  kill(child, SIGKILL);
  REQUIRE(waitpid(child, nullptr, 0) == child);
  CHECK(run::RunFolder::why_not_reopen(path) != "");  // the second is still there
  {
    const std::jthread ends([&] {
      usleep(200'000);
      kill(second, SIGKILL);
    });
    run::RunLock::await_end(path);
  }
  CHECK(run::RunFolder::why_not_reopen(path) == "");
  CHECK(holder_of(path).at("process") == child);  // killed: what it wrote is left
  CHECK(run::RunFolder::reopen(path).note() == "");
  close(told[0]);
  close(told[1]);
}

TEST_CASE("the lock that a process of another host has left: its status tells whether it goes on") {
  ScratchFolder folder;
  const std::string path = folder / "run";
  leave_run(path);
  put(path + "/lock",
      R"({"host":"elsewhere","process":7,"since":1700000000,"boot":"x","process_began":1})");
  const std::string who =
      "run folder '" + path +
      "' is in use by smp-launch, process 7 on host elsewhere, since 2023-11-14 22:13:20 UTC: ";
  SUBCASE("it does") {
    std::jthread status([&](const std::stop_token& ends) {
      for (int i = 0; !ends.stop_requested(); ++i) {
        put(path + "/status.json.new", std::to_string(i));
        fs::rename(path + "/status.json.new", path + "/status.json");
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    });
    CHECK(error_of([&] { run::RunFolder::reopen(path); }).starts_with(who));
    CHECK(holder_of(path).at("host") == "elsewhere");
  }
  SUBCASE("it does not") {
    CHECK(run::RunFolder::reopen(path).note() ==
          "run folder '" + path +
              "' was in use by smp-launch, process 7 on host elsewhere, since 2023-11-14 22:13:20 "
              "UTC, which has written nothing there for 5 s: this smp-launch has taken the folder "
              "over");
  }
}

TEST_CASE(
    "a run folder that was moved or removed under its process is told from one without files") {
  const ScratchFolder folder;
  const std::string path = fs::canonical(folder.path()).string() + "/run", other = path + "2";
  leave_run(path);
  const run::RunFolder run = run::RunFolder::reopen(path);
  CHECK(run.checkpoint() == "step-00000002");
  fs::rename(path, other);
  const std::string moved =
      "run folder '" + path + "' was moved to '" + other + "' while it was in use";
  const std::string gone = ": its checkpoints are no longer there";
  CHECK(error_of([&] { run.checkpoint(); }) == moved + gone);
  CHECK(error_of([&] { run.begin_start(); }) == moved);
  CHECK(!fs::exists(path));
  leave_run(path);  // as ranks do that save a checkpoint
  CHECK(run.checkpoint() == "step-00000002");
  CHECK(error_of([&] { run.begin_start(); }) == moved);
  fs::remove_all(path);
  fs::remove_all(other);
  CHECK(error_of([&] { run.checkpoint(); }) ==
        "run folder '" + path + "' was removed while it was in use" + gone);
}

TEST_CASE(
    "the holder of a lock that was left is gone if its host was started anew, or its number") {
  const ScratchFolder folder;
  const std::string path = folder / "run";
  leave_run(path);
  CHECK(!run::RunLock::is_left(path));
  text::Json holder;
  {
    const run::RunFolder run = run::RunFolder::reopen(path);
    CHECK(!run::RunLock::is_left(path));
    holder = holder_of(path);
  }
  const auto is_left = [&](const char* key, const text::Json& value) {
    text::Json other = holder;
    other[key] = value;
    put(path + "/lock", other.dump());
    return run::RunLock::is_left(path);
  };
  CHECK(!is_left("since", 7));
  CHECK(is_left("process_began", 1));
  CHECK(is_left("boot", "before"));
  CHECK(!is_left("host", "elsewhere"));
}

TEST_CASE("a run folder that is a link to nothing is said to be one") {
  const ScratchFolder folder;
  const std::string link = folder / "link";
  fs::create_symlink("nowhere", link);
  for (const std::string& path : {link, link + "/run"}) {
    const std::string why = "cannot create run folder '" + path + "': '" + link +
                            "' is a link to 'nowhere', which does not exist";
    CHECK(run::RunFolder::why_not(path) == why);
    CHECK(error_of([&] { run::RunFolder::create(path); }) == why);
    CHECK(error_of([&] { run::RunFolder::go_on(path); }) == why);
  }
}

TEST_CASE("a lock that nobody can read is no lock, and a folder that nobody can write is named") {
  ScratchFolder folder;
  const std::string path = folder / "run";
  leave_run(path);
  put(path + "/lock", "half a li");
  CHECK(run::RunFolder::reopen(path).path() == path);
  fs::create_symlink("/etc/passwd", path + "/lock");
  CHECK(error_of([&] { run::RunFolder::reopen(path); }) ==
        "cannot lock run folder '" + path +
            "': its file 'lock' is a symbolic link: remove the link");
}

}  // namespace smp
