#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "program.h"
#include "smp/plan/text/json.h"
#include "trace_check.h"

// Training that is watched, from outside: restarts from checkpoints, ranks that hang.

using namespace smp;
using namespace smp::text;

namespace {

std::string plan_in(const ScratchFolder& folder) {
  const std::string plan = folder / "plan.yaml";
  REQUIRE(run_program({SMP_PLAN, SMP_SOURCE_DIR "/tests/faults/job.yaml", "-o", plan, "--set",
                       "training.checkpoint.every_steps=20"})
              .code == 0);
  return plan;
}

std::vector<double> losses_of(const std::string& run) {
  std::vector<double> losses;
  std::istringstream text(read_file(run + "/metrics.jsonl"));
  for (std::string line; std::getline(text, line);) losses.push_back(Json::parse(line).at("loss"));
  return losses;
}

// The process of a rank of this run.
pid_t process_of(const std::string& run, int rank) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != name.npos) continue;
    const std::string variables = read_file(entry.path() / "environ");
    const std::string run_variable = fmt::format("SMP_RUN_DIR={}", run) + '\0';
    const std::string rank_variable = '\0' + fmt::format("RANK={}", rank) + '\0';
    if (variables.find(run_variable) != variables.npos &&
        variables.find(rank_variable) != variables.npos)
      return static_cast<pid_t>(std::stol(name));
  }
  return -1;
}

}  // namespace

TEST_CASE(
    "a rank killed in the middle: started again from the checkpoint, the losses are the same") {
  const ScratchFolder folder;
  const std::string plan = plan_in(folder), whole = folder / "whole", killed = folder / "killed";
  Program undisturbed({SMP_LAUNCH, "--run-dir", whole, plan});
  REQUIRE(undisturbed.wait(std::chrono::seconds(240)).code == 0);

  const std::string report = folder / "report.json";
  Program launched({SMP_LAUNCH, "--run-dir", killed, "--max-restarts", "2", "--restart-pause",
                    "100ms", "--report", report, plan});
  wait_for_lines(killed + "/metrics.jsonl", 50);
  const pid_t rank = process_of(killed, 2);
  REQUIRE(rank > 0);
  kill(rank, SIGKILL);
  const ProgramEnd end = launched.wait(std::chrono::seconds(240));
  INFO(end.err);
  CHECK(end.code == 0);
  CHECK(end.err.find("smp-launch: restart 1 of 2, from step-") != end.err.npos);
  CHECK(losses_of(killed) == losses_of(whole));
  const Json json = Json::parse(read_file(report));
  REQUIRE(json.at("starts").size() == 2);
  const Json& first = json.at("starts")[0];
  CHECK(first.at("exit_code") == 137);
  CHECK(first.at("step").get<int>() >= 50);
  CHECK(
      first.at("cause").get<std::string>().starts_with("rank 2 was killed by SIGKILL (Killed), "));
  CHECK(json.at("starts")[1].at("from").get<std::string>().starts_with("step-"));
}

TEST_CASE("a rank killed in a traced step leaves no broken file") {
  const ScratchFolder folder;
  const std::string plan = folder / "plan.yaml", run = folder / "run";
  REQUIRE(run_program({SMP_PLAN, SMP_SOURCE_DIR "/tests/faults/job.yaml", "-o", plan, "--set",
                       "training.trace.steps=[2, 100]"})
              .code == 0);
  Program launched({SMP_LAUNCH, "--run-dir", run, plan});
  wait_for_lines(run + "/metrics.jsonl", 5);
  const pid_t rank = process_of(run, 1);
  REQUIRE(rank > 0);
  kill(rank, SIGKILL);
  const ProgramEnd end = launched.wait(std::chrono::seconds(240));
  CHECK(end.code == 137);
  CHECK_FALSE(std::filesystem::exists(run + "/trace.json"));
  // smp-launch ends the peers, some perhaps before they have written theirs.
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(run + "/trace", none)) {
    if (entry.path().extension() != ".json") continue;  // a draft that was never finished
    CAPTURE(entry.path().string());
    CHECK(entry.path().filename() != "rank-1.json");
    const test::TraceCheck check(read_file(entry.path()));
    CHECK(check.problems() == std::vector<std::string>{});
    CHECK(check.about().at("ended") == "the run failed");
  }

  // A run that ends well writes one file, and the report shows it.
  const ProgramEnd again =
      run_program({SMP_PLAN, SMP_SOURCE_DIR "/tests/faults/job.yaml", "-o", plan, "--set",
                   "training.trace.steps=[2, 3]", "--set", "training.steps=4"});
  REQUIRE(again.code == 0);
  const std::string second = folder / "second", page = folder / "page.html";
  const ProgramEnd whole = run_program({SMP_LAUNCH, "--run-dir", second, plan});
  INFO(whole.err);
  REQUIRE(whole.code == 0);
  CHECK(whole.out.find("the timeline of steps 2 to 3 is in " + second + "/trace.json\n") !=
        whole.out.npos);
  CHECK_FALSE(std::filesystem::exists(second + "/trace"));
  CHECK(test::TraceCheck(read_file(second + "/trace.json")).problems() ==
        std::vector<std::string>{});
  REQUIRE(run_program({SMP_LAUNCH, "report", second, "--html", page}).code == 0);
  CHECK(read_file(page).find("<h2>A step as it was planned and as it was measured</h2>") !=
        std::string::npos);
}

TEST_CASE("a signal for a checkpoint during the pause before a restart: what is saved is one") {
  const ScratchFolder folder;
  const std::string plan = plan_in(folder), run = folder / "run";
  const auto launch = [&](const std::string& step) {
    Program launched(
        {SMP_LAUNCH, "--run-dir", run, "--max-restarts", "9", "--restart-pause", "1h", plan},
        {"SMP_FAULT=rank=1,step=" + step + ",kind=exception"});
    while (!contains(read_file(run + "/status.json"), "waiting")) usleep(20'000);
    launched.signal(SIGUSR1);
    return launched.wait(std::chrono::seconds(240));
  };
  SUBCASE("a checkpoint is there") {
    const ProgramEnd end = launch("50");  // the save of step 40 waits for that of step 20
    CHECK(end.code == 75);
    CHECK(contains(end.err,
                   "smp-launch: no rank was running, so the last checkpoint is complete; ended on "
                   "request; resume with --resume; exit code 75\n"));
  }
  SUBCASE("none is") {
    const ProgramEnd end = launch("3");
    CHECK(end.code == 138);
    CHECK(contains(end.err, "smp-launch: interrupted by SIGUSR1\n"));
  }
}

// Ranks load their libraries for a while before their main.
TEST_CASE("a signal for a checkpoint as soon as ranks start: the first step is saved") {
  const ScratchFolder folder;
  const std::string plan = plan_in(folder), run = folder / "run";
  const auto ends_with_75 = [&](const std::vector<std::string>& where) {
    Program launched(joined(joined({SMP_LAUNCH, "--run-dir", run}, where), {plan}));
    while (process_of(run, 3) < 0) usleep(1000);
    launched.signal(SIGUSR2);
    launched.signal(SIGUSR1);
    const ProgramEnd end = launched.wait(std::chrono::seconds(240));
    INFO(end.err);
    CHECK(end.code == 75);
    CHECK(std::filesystem::exists(run + "/checkpoints/latest"));
  };
  SUBCASE("here") { ends_with_75({}); }
  SUBCASE("on other hosts") { ends_with_75({"--hosts", "a:2,b:2", "--via", "local"}); }
}

TEST_CASE("a signal for a checkpoint while smp-launch reads its options is not lost") {
  const ScratchFolder folder;
  const std::string plan = plan_in(folder), fifo = folder / "variables";
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  Program launched({SMP_LAUNCH, "--env-file", fifo, "--run-dir", folder / "run", plan});
  {
    const std::ofstream variables(fifo);  // opened when smp-launch has opened it
    launched.signal(SIGUSR2);
    launched.signal(SIGUSR1);
  }
  const ProgramEnd end = launched.wait(std::chrono::seconds(240));
  INFO(end.err);
  CHECK(end.code == 75);
  CHECK(std::filesystem::exists(folder / "run/checkpoints/latest"));
}

TEST_CASE("a signal for a checkpoint before a rank has started: nothing is lost") {
  const ScratchFolder folder;
  const std::string plan = plan_in(folder);
  Program launched({SMP_LAUNCH, "--run-dir", folder / "run", "--hosts", "a:4", "--via",
                    "exec:echo up >> " + (folder / "up") + "; exec sleep 100", plan});
  wait_for_lines(folder / "up", 1);
  launched.signal(SIGUSR1);
  const ProgramEnd end = launched.wait(std::chrono::seconds(240));
  CHECK(end.code == 75);
  CHECK(contains(
      end.err,
      "smp-launch: no rank had started; ended on request; start the job again; exit code 75\n"));
}

TEST_CASE("10,000 signals to ranks that train: the losses are the same") {
  const ScratchFolder folder;
  const std::string plan = plan_in(folder), quiet = folder / "quiet", loud = folder / "loud";
  Program undisturbed({SMP_LAUNCH, "--run-dir", quiet, plan});
  REQUIRE(undisturbed.wait(std::chrono::seconds(240)).code == 0);
  Program launched({SMP_LAUNCH, "--run-dir", loud, plan});
  pid_t ranks[4];
  for (int rank = 0; rank < 4; ++rank) {
    while ((ranks[rank] = process_of(loud, rank)) < 0) usleep(1000);
  }
  for (int i = 0; i < 2500; ++i) {
    constexpr int kNumbers[] = {SIGCONT, SIGWINCH, SIGCHLD};
    const int number = i % 50 == 0 ? SIGUSR2 : kNumbers[i % 3];  // a report is long
    for (const pid_t rank : ranks) kill(rank, number);
    usleep(200);
  }
  const ProgramEnd end = launched.wait(std::chrono::seconds(240));
  INFO(end.err);
  CHECK(end.code == 0);
  CHECK(losses_of(loud) == losses_of(quiet));
}

TEST_CASE("a failure that repeats at the same step is not tried a third time") {
  const ScratchFolder folder;
  const std::string plan = plan_in(folder), run = folder / "run";
  Program launched(
      {SMP_LAUNCH, "--run-dir", run, "--max-restarts", "9", "--restart-pause", "10ms", plan},
      {"SMP_FAULT=rank=1,step=30,kind=exception"});
  const ProgramEnd end = launched.wait(std::chrono::seconds(240));
  INFO(end.err);
  CHECK(end.code == 1);
  CHECK(end.err.find("smp-launch: restart 1 of 9, from step-") != end.err.npos);
  CHECK(end.err.find("smp-launch: no restart: two starts in a row failed at step 30\n") !=
        end.err.npos);
  CHECK(end.err.find("restart 2") == end.err.npos);
}

TEST_CASE("a rank that stands still: who it is, where each rank is, and exit code 124") {
  const ScratchFolder folder;
  const std::string plan = plan_in(folder), run = folder / "run";
  Program launched({SMP_LAUNCH, "--run-dir", run, "--hang-timeout", "1s", "--on-hang", "end",
                    "--hang-dump", "calls", plan},
                   {"SMP_FAULT=rank=1,step=5,kind=stop"});
  const ProgramEnd end = launched.wait(std::chrono::seconds(240));
  INFO(end.err);
  CHECK(end.code == 124);
  CHECK(end.err.find("; the others wait for rank 1\n  rank 1 is at step 5: start; ") !=
        end.err.npos);
  CHECK(end.err.find("waits in collective ") != end.err.npos);
  // The ranks that wait have shown what they called last.
  CHECK(contains(read_file(run + "/logs/rank-0.err"), "data.gradients"));
}
