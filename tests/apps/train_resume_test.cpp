#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "program.h"
#include "smp/plan/text/json.h"

// Runs that go on, or are refused, from outside: what becomes of their folder.

using namespace smp;
using namespace smp::text;
namespace fs = std::filesystem;

namespace {

// One rank, a step takes a millisecond, a checkpoint every ten.
class Runs {
 public:
  Runs() {
    std::ofstream text(folder_ / "text.txt");
    for (int i = 0; i < 300; ++i) text << i << " times " << i << " is " << i * i << ".\n";
  }

  std::string operator/(const std::string& name) const { return folder_ / name; }

  std::string plan(const std::string& name, const std::vector<std::string>& pins) const {
    std::vector<std::string> command = {SMP_PLAN, SMP_SOURCE_DIR "/tests/faults/job.yaml", "-o",
                                        folder_ / name};
    for (const std::string& pin :
         joined({"cluster.processes_per_host=1", "training.data.path=" + (folder_ / "text.txt"),
                 "training.data.suffixes=[]", "training.steps=20",
                 "training.checkpoint.every_steps=10", "training.checkpoint.keep=3"},
                pins))
      command.insert(command.end(), {"--set", pin});
    const ProgramEnd end = run_program(command);
    REQUIRE_MESSAGE(end.code == 0, end.err);
    return folder_ / name;
  }

  ProgramEnd launch(const std::vector<std::string>& words,
                    const std::vector<std::string>& environment = {}) const {
    return run_program(
        joined({"/bin/sh", "-c", "cd " + folder_.path() + " && exec " SMP_LAUNCH " \"$@\"", "sh"},
               words),
        environment);
  }

  // Contents of all files below the run's folder; "/" behind folders.
  std::map<std::string, std::string> contents(const std::string& run) const {
    std::map<std::string, std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(folder_ / run)) {
      const std::string path = entry.path().string();
      found[path + (entry.is_directory() ? "/" : "")] = entry.is_directory() ? "" : read_file(path);
    }
    return found;
  }

 private:
  ScratchFolder folder_;
};

int64_t steps_in(const std::string& run) {
  const std::string text = read_file(run + "/metrics.jsonl");
  return std::count(text.begin(), text.end(), '\n');
}

}  // namespace

TEST_CASE("patience ends a run well, its last line says so, and going on says it again") {
  const Runs runs;
  const std::string plan =
      runs.plan("plan.yaml", {"training.evaluation.every_steps=2", "training.evaluation.patience=3",
                              "training.evaluation.min_improvement=100",
                              "training.metrics=[jsonl, tensorboard]"});
  const ProgramEnd ended = runs.launch({"--run-dir", "run", plan});
  CHECK(ended.code == 0);
  const std::string why =
      " at step 8 of 20: 3 evaluations in a row without improvement (training.evaluation.patience)"
      "; the lowest loss, ";
  CHECK(contains(ended.out, "\n[0] ended" + why));
  CHECK(contains(ended.out, "  ended   " + why));
  CHECK(contains(ended.out, "run/report.json, metrics.jsonl, tensorboard/, logs/\n"));
  CHECK(steps_in(runs / "run") == 8);
  const Json report = Json::parse(read_file(runs / "run/report.json"));
  CHECK(contains(report.at("ended_early").get<std::string>(), why.substr(1)));
  CHECK(report.at("evaluation").at("best").at("step").get<int64_t>() > 0);

  const ProgramEnd again = runs.launch({"--resume", "--run-dir", "run", plan});
  CHECK(again.code == 0);
  CHECK(contains(again.out, "[0] ended" + why));
  CHECK(steps_in(runs / "run") == 8);
}

TEST_CASE("a resume that is refused changes nothing: one that is complete says so") {
  const Runs runs;
  const std::string plan = runs.plan("plan.yaml", {});
  REQUIRE(runs.launch({"--run-dir", "run", plan}).code == 0);
  const auto before = runs.contents("run");
  CHECK(before.count(runs / "run/lock") == 0);
  CHECK(before.count(runs / "run/plan.yaml.new") == 0);

  const std::string upper = runs / "upper.txt";
  std::string text = read_file(runs / "text.txt");
  for (char& one : text) one = static_cast<char>(std::toupper(one));
  std::ofstream(upper) << text;
  const std::string other = runs.plan(
      "other.yaml", {"model.num_heads=1", "model.norm_epsilon=0.5", "training.sequence_length=16",
                     "training.steps=40", "training.data.path=" + upper});
  const ProgramEnd refused = runs.launch({"--resume", "--run-dir", "run", other});
  CHECK(refused.code == 3);
  CHECK(
      refused.err ==
      fmt::format("smp-launch: run/checkpoints/step-00000020: the checkpoint belongs to another "
                  "training:\n  model.num_heads: 2 in the checkpoint, 1 in this job\n  "
                  "model.num_kv_heads: 2 in the checkpoint, 1 in this job\n  model.head_dim: 16 in "
                  "the checkpoint, 32 in this job\n  model.norm_epsilon: 1e-05 in the checkpoint, "
                  "0.5 in this job\n  training.sequence_length: 32 in the checkpoint, 16 in this "
                  "job\n  training.data: the content of {} of {} bytes differs from {} in the "
                  "checkpoint\nrestore these values, or start a new run in another folder without "
                  "--resume; docs/checkpoints.md lists the keys that may change\n",
                  upper, text.size(), runs / "text.txt"));
  CHECK(runs.contents("run") == before);

  for (const char* resume : {"--resume", "--resume=if-any", "--resume=20"}) {
    const ProgramEnd complete = runs.launch({resume, "--run-dir", "run", plan});
    CHECK(complete.code == 0);
    CHECK(complete.out == "");
    CHECK(complete.err ==
          "smp-launch: the run in 'run' is complete: 20 of 20 steps are done and the weights are "
          "saved; to train further, plan with a larger training.steps\n");
    CHECK(runs.contents("run") == before);
  }

  const std::string fewer = runs.plan("fewer.yaml", {"training.steps=15"});
  CHECK(runs.launch({"--resume", "--run-dir", "run", fewer}).err ==
        "smp-launch: run/checkpoints/step-00000020: the checkpoint is of step 20, but "
        "training.steps is 15: plan with at least as many steps\n");
  CHECK(runs.contents("run") == before);

  // Refused by a rank, after it was started: the run itself is as it was.
  const std::string for_gpu = runs.plan(
      "gpu.yaml", {"cluster.device=cuda", "cluster.memory_per_process=4GiB", "training.steps=40"});
  CHECK(runs.launch({"--resume", "--run-dir", "run", for_gpu},
                    {"SMP_CUDA_MODULE=/nowhere/libsmp_cuda.so"})
            .code == 3);
  const auto after = runs.contents("run");
  for (const auto& [path, content] : before) {
    const std::string name = path.substr((runs / "run/").size());
    if (!name.starts_with("logs/") && !name.starts_with("timeline") && name != "status.json" &&
        name != "events.jsonl" && name != "usage.jsonl")
      CHECK_MESSAGE(after.count(path) == 1, path);
    if (name == "plan.yaml" || name.ends_with(".json") || name == "metrics.jsonl")
      CHECK_MESSAGE(
          (name == "status.json" || name.starts_with("timeline") || after.at(path) == content),
          path);
  }
  CHECK(after.count(runs / "run/plan.yaml.new") == 0);

  const std::string more = runs.plan("more.yaml", {"training.steps=30"});
  CHECK(runs.launch({"--resume", "--run-dir", "run", more}).code == 0);
  CHECK(steps_in(runs / "run") == 30);
  CHECK(read_file(runs / "run/plan.yaml") == read_file(more));
}

TEST_CASE("`latest` that is missing: a job that others start again goes on from what is whole") {
  const Runs runs;
  const std::string plan = runs.plan("plan.yaml", {});
  REQUIRE(runs.launch({"--resume=if-any", "--run-dir", "run", plan}).code == 0);
  fs::remove(runs / "run/checkpoints/latest");
  fs::create_directories(runs / "run/checkpoints/step-00000030.old.partial");
  const std::string more = runs.plan("more.yaml", {"training.steps=30"});
  const ProgramEnd end = runs.launch({"--resume=if-any", "--run-dir", "run", more});
  INFO(end.err);
  CHECK(end.code == 0);
  CHECK(steps_in(runs / "run") == 30);
  for (const char* name : {"step-00000010", "step-00000020", "step-00000030"})
    CHECK(fs::exists(runs / ("run/checkpoints/" + std::string(name))));
  CHECK(!fs::exists(runs / "run/checkpoints/step-00000030.old.partial"));
}

TEST_CASE("weights that were not saved before a kill are saved, and the report stands") {
  const Runs runs;
  const std::string plan = runs.plan("plan.yaml", {});
  REQUIRE(runs.launch({"--run-dir", "run", plan}).code == 0);
  const std::string report = read_file(runs / "run/report.json");
  fs::remove_all(runs / "run/weights");
  CHECK(runs.launch({"--resume", "--run-dir", "run", plan}).code == 0);
  CHECK(read_file(runs / "run/report.json") == report);
  CHECK(fs::exists(runs / "run/weights/model.safetensors"));
}

TEST_CASE("one smp-launch at a time: Ctrl-C ends it with the command that goes on") {
  const Runs runs;
  const std::string plan = runs.plan("plan.yaml", {"training.steps=4000000"});
  const std::string run = runs / "a run";
  Program first({SMP_LAUNCH, "--run-dir", run, "--grace", "9s", plan});
  while (!fs::exists(run + "/checkpoints/latest")) usleep(10'000);
  const Json holder = Json::parse(read_file(run + "/lock"));
  for (const std::vector<std::string>& resume :
       {std::vector<std::string>{}, {"--resume"}, {"--resume=if-any"}}) {
    const ProgramEnd second =
        run_program(joined(joined({SMP_LAUNCH}, resume), {"--run-dir", run, plan}));
    CHECK(second.code == 3);
    CHECK(second.err.starts_with(
        fmt::format("smp-launch: run folder '{}' is in use by smp-launch, process {} on host {}, "
                    "since 20",
                    run, first.pid(), holder.at("host").get<std::string>())));
  }
  CHECK(first.pid() == holder.at("process").get<pid_t>());
  first.signal(SIGINT);
  const ProgramEnd end = first.wait();
  CHECK(end.code == 130);
  CHECK(!fs::exists(run + "/lock"));
  const size_t last = end.err.rfind("smp-launch: to resume from step-");
  REQUIRE(last != end.err.npos);
  const std::string line = end.err.substr(last);
  const std::string command = line.substr(line.find(": smp-launch ") + 2);
  CHECK(command == fmt::format("smp-launch --grace 9s --resume --run-dir '{}' {}\n", run, plan));

  // It does what it says.
  const std::string programs = fs::path(SMP_LAUNCH).parent_path().string();
  Program again({"/bin/sh", "-c", "exec " + command},
                {"PATH=" + programs + ":" + std::getenv("PATH")});
  const int64_t before = steps_in(run);
  while (steps_in(run) < before + 10) usleep(10'000);
  again.signal(SIGTERM);
  CHECK(again.wait().code == 143);
}

TEST_CASE("a job that has saved nothing says that it cannot be resumed") {
  const Runs runs;
  const std::string plan = runs.plan("plan.yaml", {});
  const ProgramEnd end =
      runs.launch({"--run-dir", "run", plan}, {"SMP_FAULT=rank=0,step=5,kind=exit3"});
  CHECK(end.code == 3);
  CHECK(end.err.ends_with(
      "smp-launch: no checkpoint was saved in run, so the job cannot be resumed\n"));
  // The save of step 10 waits for that of step 5, which is whole then.
  const std::string often = runs.plan("often.yaml", {"training.checkpoint.every_steps=5"});
  const ProgramEnd later =
      runs.launch({"--run-dir", "later", often}, {"SMP_FAULT=rank=0,step=12,kind=segv"});
  const auto goes_on_from = [&](const std::string& step) {
    return later.err.ends_with("smp-launch: to resume from " + step +
                               ": smp-launch --resume --run-dir later " + often + "\n");
  };
  CHECK_MESSAGE((goes_on_from("step-00000005") || goes_on_from("step-00000010")), later.err);
}

TEST_CASE("a job whose run folder was moved says where to, not that nothing was saved") {
  const Runs runs;
  const std::string plan =
      runs.plan("plan.yaml", {"training.steps=4000000", "training.checkpoint.every_steps=1000000"});
  const std::string run = fs::canonical(runs / "").string() + "/run", other = run + "2";
  Program program({SMP_LAUNCH, "--run-dir", run, plan});
  while (!fs::exists(run + "/metrics.jsonl") || steps_in(run) == 0) usleep(10'000);
  fs::rename(run, other);
  program.signal(SIGTERM);
  CHECK(contains(program.wait().err,
                 "smp-launch: run folder '" + run + "' was moved to '" + other +
                     "' while it was in use: its checkpoints are no longer there\n"));
}

TEST_CASE("a start in which no rank started leaves the folder as it was") {
  const Runs runs;
  const std::string plan = runs.plan("plan.yaml", {});
  const std::vector<std::string> unreachable = {"--hosts", "far", "--via", "exec:exit 1"};
  CHECK(runs.launch(joined(unreachable, {"--run-dir", "runs/new", plan})).code == 125);
  CHECK(!fs::exists(runs / "runs"));
  CHECK(runs.launch(joined(unreachable, {plan})).code == 125);
  CHECK(!fs::exists(runs / "runs"));

  REQUIRE(runs.launch({"--run-dir", "run", plan}).code == 0);
  const std::string more = runs.plan("more.yaml", {"training.steps=30"});
  const auto before = runs.contents("run");
  const ProgramEnd end = runs.launch(joined(unreachable, {"--resume", "--run-dir", "run", more}));
  CHECK(end.code == 125);
  CHECK(
      end.err.ends_with("smp-launch: to resume from step-00000020: smp-launch --hosts far --via "
                        "'exec:exit 1' --resume --run-dir run " +
                        more + "\n"));
  CHECK(runs.contents("run") == before);

  fs::rename(runs / "text.txt", runs / "gone.txt");
  CHECK(runs.launch({"--run-dir", "other", plan}).code == 3);
  CHECK(!fs::exists(runs / "other"));
}

TEST_CASE("ranks that were refused leave a folder that the next start takes") {
  const Runs runs;
  const std::string gpu =
      runs.plan("gpu.yaml", {"cluster.device=cuda", "cluster.memory_per_process=4GiB"});
  const std::string plan = runs.plan("plan.yaml", {});
  CHECK(runs.launch({"--run-dir", "run", gpu}, {"SMP_CUDA_MODULE=/nowhere/libsmp_cuda.so"}).code ==
        3);
  CHECK(!fs::exists(runs / "run/plan.yaml"));
  const ProgramEnd end = runs.launch({"--run-dir", "run", plan});
  INFO(end.err);
  CHECK(end.code == 0);
  CHECK(read_file(runs / "run/plan.yaml") == read_file(plan));
}

TEST_CASE("a FIFO in place of a file of the run is refused, and never waited for") {
  const Runs runs;
  REQUIRE(runs.launch({"--run-dir", "run", runs.plan("plan.yaml", {})}).code == 0);
  const std::string more = runs.plan("more.yaml", {"training.steps=30"});
  const std::string saved = "checkpoints/step-00000020";
  const auto error_with = [&](const std::string& name) {
    const std::string path = runs / ("run/" + name);
    fs::rename(path, runs / "aside");
    REQUIRE(mkfifo(path.c_str(), 0600) == 0);
    const ProgramEnd end = runs.launch({"--resume", "--timeout", "100s", "--run-dir", "run", more});
    CHECK(end.code != 0);
    CHECK(end.code != 124);
    fs::rename(runs / "aside", path);
    return end.err;
  };
  CHECK(error_with(saved + "/manifest.json") ==
        fmt::format(
            "smp-launch: run/{}/manifest.json: cannot be read: the checkpoint is not complete\n",
            saved));
  const std::string shard = "/shard-00001-model-00001-of-00001.safetensors";
  CHECK(contains(error_with(saved + shard),
                 shard + ": cannot read: expected a regular file; it holds"));
  CHECK(contains(error_with("metrics.jsonl"), "metrics.jsonl: No such device or address\n"));
}

TEST_CASE("a number of threads that no machine has is refused by name") {
  const Runs runs;
  const std::string plan = runs.plan("plan.yaml", {});
  for (const std::string threads : {"0", "-1", "100000"}) {
    const ProgramEnd end = runs.launch({"--run-dir", "run", "--timeout", "100s", plan},
                                       {"OMP_NUM_THREADS=" + threads});
    CHECK(end.code == 3);
    CHECK(contains(end.err, "start: OMP_NUM_THREADS=" + threads +
                                ": expected a whole number from 1 to 1024\n"));
    fs::remove_all(runs / "run");
  }
}

TEST_CASE(
    "a limit of the size of files is an error of the write, not the rank's death by SIGXFSZ") {
  const Runs runs;
  const std::string plan = runs.plan("plan.yaml", {});
  const ProgramEnd end =
      run_program({"/bin/sh", "-c", "ulimit -f 100; exec " SMP_LAUNCH " --run-dir \"$0\" \"$1\"",
                   runs / "run", plan});
  CHECK(end.code == 1);
  CHECK(contains(end.err, ": File too large\n"));
}

TEST_CASE("a supervising process that is killed leaves the command that goes on, too") {
  const Runs runs;
  const std::string plan = runs.plan("plan.yaml", {"training.steps=1000000"});
  const ProgramEnd end = run_program(
      {"/bin/sh", "-c",
       "cd \"$0\"; " SMP_LAUNCH " --show-ranks none --run-dir run plan.yaml & launcher=$!; "
       "until test -e run/checkpoints/latest; do sleep 0.05; done; "
       "kill -9 $(cat /proc/$launcher/task/$launcher/children); wait $launcher",
       runs / ""});
  CHECK(end.code == 125);
  const std::string latest = read_file(runs / "run/checkpoints/latest");
  CHECK(contains(end.err, fmt::format("smp-launch: to resume from {}: smp-launch --show-ranks none "
                                      "--resume --run-dir run plan.yaml\n",
                                      latest.substr(0, latest.find('\n')))));
}
