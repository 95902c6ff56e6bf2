#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "program.h"
#include "smp/plan/text/json.h"
#include "tolerances.h"

// The main job from outside, with real processes: a job file, a plan, its proof, the run, what it
// leaves behind.

using namespace smp;
using namespace smp::text;

namespace {

constexpr const char* kJob = SMP_SOURCE_DIR "/tests/faults/job.yaml";
constexpr int kSteps = 12;

struct Run {
  Json report;
  std::vector<Json> metrics;
};

void add_pins(std::vector<std::string>& command, const std::vector<std::string>& pins) {
  for (const std::string& pin : pins) {
    command.push_back("--set");
    command.push_back(pin);
  }
}

std::vector<Json> lines_of(const std::string& path) {
  std::vector<Json> objects;
  std::istringstream text(read_file(path));
  for (std::string line; std::getline(text, line);) objects.push_back(Json::parse(line));
  return objects;
}

Run train(const std::string& folder, const std::vector<std::string>& pins) {
  const std::string plan = folder + "/plan.yaml", run = folder + "/run";
  std::vector<std::string> planning = {SMP_PLAN, kJob, "-o", plan};
  add_pins(planning, {"training.steps=" + std::to_string(kSteps)});
  add_pins(planning, pins);
  const ProgramEnd planned = run_program(planning);
  CHECK(planned.err == "");
  REQUIRE(planned.code == 0);

  const ProgramEnd proved = run_program({SMP_LAUNCH, "--dry-run", plan});
  CHECK(proved.code == 0);

  Program launched({SMP_LAUNCH, "--run-dir", run, plan});
  const ProgramEnd trained = launched.wait(std::chrono::seconds(240));
  INFO(trained.err);
  REQUIRE(trained.code == 0);
  CHECK(read_file(run + "/plan.yaml") == read_file(plan));
  CHECK(std::filesystem::exists(run + "/weights/model.safetensors"));
  CHECK(Json::parse(read_file(run + "/weights/config.json")).at("model_type") == "gpt2");
  CHECK(std::filesystem::exists(run + "/logs/rank-3.err"));
  return {Json::parse(read_file(run + "/report.json")), lines_of(run + "/metrics.jsonl")};
}

// What the plan said of each rank, against what was counted there.
void check_ranks(const Json& report) {
  CHECK(report.at("ranks").size() == 4);
  for (const Json& rank : report.at("ranks")) {
    CHECK(rank.at("predicted_wire_bytes") == rank.at("measured_wire_bytes"));
    CHECK(rank.at("measured_wire_bytes").get<int64_t>() > 0);
    for (const char* state : {"weights", "gradients", "optimizer"}) {
      CHECK(rank.at("predicted_bytes_by_category").at(state) ==
            rank.at("measured_bytes_by_category").at(state));
    }
    CHECK(rank.at("predicted_peak_bytes").get<double>() ==
          doctest::Approx(rank.at("measured_peak_bytes").get<double>())
              .epsilon(tolerance::kPeakBytes));
  }
}

}  // namespace

namespace {

// The page of a run shows the bytes that were counted, and the recorded step of each rank.
void check_page(const std::string& run, const Json& report) {
  const std::string page_file = run + ".html";
  const ProgramEnd end = run_program({SMP_LAUNCH, "report", run, "--html", page_file});
  CHECK(end.err == "");
  REQUIRE(end.out == fmt::format("wrote {}\n", page_file));
  const std::string page = read_file(page_file);
  for (const Json& rank : report.at("ranks")) {
    const auto& weights = rank.at("measured_bytes_by_category").at("weights");
    CHECK(contains(page, fmt::format("data-name=\"weights\" data-bytes=\"{}\"", weights.dump())));
    CHECK(contains(page, fmt::format("aria-label=\"rank {}\"", rank.at("rank").dump())));
  }
  CHECK(contains(page, "forward of microbatch 0: "));
  CHECK(contains(page, "<p>Step 3, "));
}

}  // namespace

TEST_CASE("a job is planned, proved and trained by processes, and the plan was right") {
  const std::vector<std::vector<std::string>> layouts = {
      {"parallel.tensor_parallel_degree=2", "parallel.pipeline_parallel_degree=2",
       "training.microbatches=8"},
      {"parallel.tensor_parallel_degree=1", "parallel.pipeline_parallel_degree=2",
       "parallel.shard_optimizer_state=true", "training.microbatches=4"},
      {"parallel.tensor_parallel_degree=1", "parallel.pipeline_parallel_degree=1",
       "parallel.shard_optimizer_state=true", "training.microbatches=2"},
  };
  std::vector<Json> first;  // metrics of the first layout: the others must train alike
  for (const std::vector<std::string>& pins : layouts) {
    CAPTURE(pins.front());
    CAPTURE(pins.size());
    const ScratchFolder folder;
    const Run run = train(folder.path(), pins);
    check_ranks(run.report);
    check_page(folder / "run", run.report);
    REQUIRE(run.metrics.size() == kSteps);
    CHECK(run.report.at("loss").at("first") == run.metrics.front().at("loss"));
    CHECK(run.report.at("loss").at("last") == run.metrics.back().at("loss"));
    CHECK(run.report.at("loss").at("last") < run.report.at("loss").at("first"));
    if (first.empty()) first = run.metrics;
    for (int step = 0; step < kSteps; ++step) {
      const size_t i = static_cast<size_t>(step);
      CHECK(run.metrics[i].at("step") == step + 1);
      CHECK(run.metrics[i].at("loss").get<double>() ==
            doctest::Approx(first[i].at("loss").get<double>()).epsilon(tolerance::kParityF32.loss));
    }
  }
}

TEST_CASE("an agent's ranks train bit for bit as those of a plain run") {
  const ScratchFolder folder;
  const std::string plan = folder / "plan.yaml";
  REQUIRE(run_program({SMP_PLAN, kJob, "-o", plan, "--set", "training.steps=5"}).code == 0);
  std::vector<std::vector<Json>> losses;
  for (const std::vector<std::string>& hosts :
       {std::vector<std::string>{}, {"--hosts", "here", "--via", "local"}}) {
    const std::string run = fmt::format("{}/run{}", folder.path(), hosts.size());
    std::vector<std::string> command = {SMP_LAUNCH, "--run-dir", run};
    command.insert(command.end(), hosts.begin(), hosts.end());
    command.push_back(plan);
    REQUIRE(run_program(command).code == 0);
    losses.emplace_back();
    for (const Json& line : lines_of(run + "/metrics.jsonl"))
      losses.back().push_back(line.at("loss"));
  }
  CHECK(losses[0].size() == 5);
  CHECK(losses[0] == losses[1]);
}

TEST_CASE("ranks read the data that their hosts were pushed") {
  const ScratchFolder folder;
  const std::string plan = folder / "plan.yaml", run = folder / "run";
  std::ofstream(folder / "text.py") << std::string(100'000, 'a') << "end\n";
  REQUIRE(run_program({SMP_PLAN, kJob, "-o", plan, "--set", "training.steps=3", "--set",
                       "training.data.path=text.py"})
              .code == 0);
  const ProgramEnd end = run_program({"/bin/sh", "-c",
                                      "cd " + folder.path() +
                                          " && exec " SMP_LAUNCH
                                          " --hosts a:2,b:2 --via 'exec:cd / && exec $SMP_AGENT "
                                          "--agent' --push text.py --run-dir " +
                                          run + " plan.yaml"});
  INFO(end.err);
  CHECK(end.code == 0);
  CHECK(lines_of(run + "/metrics.jsonl").size() == 3);
}

// python-stdlib is where each host's python3 says.
TEST_CASE("hosts whose data differ do not train, and are named with what they hold") {
  const ScratchFolder folder;
  const std::string plan = folder / "plan.yaml", python = folder / "python3";
  std::filesystem::create_directories(folder / "a");
  std::filesystem::create_directories(folder / "b");
  std::ofstream(folder / "a/text.py") << std::string(18'000, 'a');
  std::ofstream(folder / "b/text.py") << std::string(18'003, 'a');
  std::ofstream(python) << "#!/bin/sh\ntest \"$GROUP_RANK\" = 1 && echo " << folder / "b"
                        << " || echo " << folder / "a"
                        << "\n";
  std::filesystem::permissions(python, std::filesystem::perms::owner_all);
  REQUIRE(run_program({SMP_PLAN, kJob, "-o", plan}).code == 0);
  const ProgramEnd end = run_program({SMP_LAUNCH, "--hosts", "a:2,b:2", "--via", "local",
                                      "--max-restarts", "3", "--run-dir", folder / "run", plan},
                                     {"PATH=" + folder.path() + ":/usr/bin:/bin"});
  CHECK(end.code == 3);
  INFO(end.err);
  CHECK(contains(
      end.err, "the ranks differ in what they would train with, so the result would be wrong:\n"));
  CHECK(contains(
      end.err, "  ranks 2 to 3 on b: training.data.path, text.py: 18003 bytes (sampled content "));
  CHECK(contains(end.err, "; rank 0 on a: 18000 bytes (sampled content "));
  CHECK(contains(
      end.err,
      "no restart: the error is in the job's configuration, so a restart would fail too\n"));
}

TEST_CASE("data that are gone for a moment while a job trains cost it a restart") {
  const ScratchFolder folder;
  const std::string plan = folder / "plan.yaml", run = folder / "run", text = folder / "text.py";
  std::ofstream(text) << std::string(100'000, 'a');
  REQUIRE(run_program({SMP_PLAN, kJob, "-o", plan, "--set", "training.data.path=" + text, "--set",
                       "training.checkpoint.every_steps=100"})
              .code == 0);
  Program launched(
      {SMP_LAUNCH, "--max-restarts", "3", "--restart-pause", "1s", "--run-dir", run, plan});
  wait_for_lines(run + "/metrics.jsonl", 1);
  std::filesystem::rename(text, folder / "away");
  for (std::string status;
       !contains(status, "\"state\": \"waiting\"") && !contains(status, "\"start\": 2") &&
       !contains(status, "\"state\": \"ended\"");
       usleep(10'000))
    status = read_file(run + "/status.json");
  std::filesystem::rename(folder / "away", text);
  const ProgramEnd end = launched.wait(std::chrono::seconds(240));
  INFO(end.err);
  CHECK(end.code == 0);
  CHECK(
      contains(end.err, "training.data.path: cannot read " + text + ": No such file or directory"));
  CHECK(contains(end.err, "smp-launch: restart 1 of 3, from "));
  CHECK(lines_of(run + "/metrics.jsonl").size() == 400);
}

TEST_CASE("a host that does not share the run folder is named before any rank starts") {
  const ScratchFolder folder;
  const std::string plan = folder / "plan.yaml", run = folder / "run";
  REQUIRE(run_program({SMP_PLAN, kJob, "-o", plan}).code == 0);
  const ProgramEnd end = run_program(
      {SMP_LAUNCH, "--hosts", "far", "--run-dir", run, "--via",
       "exec:mv " + run + "/plan.yaml.new " + run + "/gone; exec $SMP_AGENT --agent", plan});
  CHECK(end.code == 125);
  CHECK(end.err ==
        "smp-launch: 1 of 1 host could not be used:\n  host far: it cannot read '" + run +
            "/plan.yaml.new' of the launching host (No such file or directory): the ranks of a "
            "plan share the run folder: give a --run-dir in a file system that all hosts mount; "
            "data and weights can be there too, or be sent with --push\n");
}

TEST_CASE("a run that a rank does not survive keeps what it had and says whose fault it was") {
  const ScratchFolder folder;
  const std::string plan = folder.path() + "/plan.yaml", run = folder.path() + "/run";
  REQUIRE(run_program({SMP_PLAN, kJob, "-o", plan}).code == 0);
  Program launched({SMP_LAUNCH, "--run-dir", run, plan}, {"SMP_FAULT=rank=2,step=5,kind=exit3"});
  const ProgramEnd end = launched.wait(std::chrono::seconds(240));
  CHECK(end.code == 3);
  CHECK(end.err.find("rank 2") != std::string::npos);
  CHECK(lines_of(run + "/metrics.jsonl").size() == 4);
  CHECK(!std::filesystem::exists(run + "/weights/model.safetensors"));
}

TEST_CASE("one rank of a plan for more ranks than a host holds is built alone, as planned") {
  const ScratchFolder folder;
  const std::string plan = folder / "plan.yaml";
  std::vector<std::string> planning = {SMP_PLAN, kJob, "--hosts", "128", "-o", plan};
  // Channels to 127 other hosts take more than the job's 64 MiB.
  add_pins(planning, {"training.steps=0", "cluster.memory_per_process=256MiB",
                      "parallel.sharded_data_parallel_degree=256", "parallel.sharding=parameters",
                      "parallel.tensor_parallel_degree=2", "parallel.pipeline_parallel_degree=1"});
  const ProgramEnd planned = run_program(planning);
  INFO(planned.err);
  REQUIRE(planned.code == 0);
  const ProgramEnd built = run_program({SMP_LAUNCH, "--build-only=3", plan});
  CHECK(built.err == "");
  CHECK(built.code == 0);
  CHECK(built.out.starts_with("rank 3 of 512: pipeline 0, tensor 1, shard 1, replica 0; "));
  CHECK(built.out.find("\nweights, gradients and optimizer state are as planned: ") !=
        std::string::npos);
  const ProgramEnd none = run_program({SMP_LAUNCH, "--build-only=512", plan});
  CHECK(none.code == 3);
  CHECK(none.err == "smp-launch: --build-only=512: the plan has ranks 0 to 511\n");
}

TEST_CASE("SIGUSR2 prints the memory and the last calls of every rank, and training goes on") {
  const ScratchFolder folder;
  const std::string plan = folder / "plan.yaml", run = folder / "run";
  REQUIRE(run_program({SMP_PLAN, kJob, "-o", plan}).code == 0);
  Program launched({SMP_LAUNCH, "--run-dir", run, plan});
  wait_for_lines(run + "/metrics.jsonl", 3);
  launched.signal(SIGUSR2);
  const ProgramEnd end = launched.wait(std::chrono::seconds(240));
  CHECK(end.code == 0);
  for (int rank = 0; rank < 4; ++rank) {
    const std::string log = read_file(fmt::format("{}/logs/rank-{}.err", run, rank));
    CAPTURE(log);
    CHECK(log.starts_with(fmt::format("memory of rank {} in step ", rank)));
    CHECK(log.find("\n  largest items in use now\n") != std::string::npos);
    CHECK(log.find("  optimizer     momentum\n") != std::string::npos);
    CHECK(log.find(fmt::format(" calls of rank {}, oldest first; times are ages\n", rank)) !=
          std::string::npos);
    CHECK(log.find("  data.gradients\n") != std::string::npos);
  }
}

TEST_CASE("SIGUSR1 asks for a checkpoint, and --resume goes on from it in another layout") {
  const ScratchFolder folder;
  const std::string run = folder / "run";
  const auto plan_of = [&](const std::string& name, const std::vector<std::string>& pins) {
    std::vector<std::string> command = {SMP_PLAN, kJob, "-o", folder / name};
    add_pins(command, pins);
    REQUIRE(run_program(command).code == 0);
    return folder / name;
  };
  const std::string first = plan_of("first.yaml", {"parallel.tensor_parallel_degree=2"});
  const std::string second = plan_of(
      "second.yaml", {"parallel.pipeline_parallel_degree=2", "parallel.tensor_parallel_degree=1"});
  Program launched({SMP_LAUNCH, "--run-dir", run, first});
  wait_for_lines(run + "/metrics.jsonl", 3);
  launched.signal(SIGUSR1);
  const ProgramEnd end = launched.wait(std::chrono::seconds(240));
  INFO(end.err);
  CHECK(end.code == 75);
  CHECK(end.err.find("smp-launch: saved a checkpoint and ended on request; resume with --resume; "
                     "exit code 75\n") != std::string::npos);
  const size_t done = lines_of(run + "/metrics.jsonl").size();
  REQUIRE(done >= 3);
  CHECK(!std::filesystem::exists(run + "/weights"));

  // So does Slurm, by the script that is made for it.
  CHECK(contains(run_program({SMP_LAUNCH, "--dry-run=sbatch", first}).out,
                 "\n#SBATCH --signal=B:USR1@120\n"));

  CHECK(run_program({SMP_LAUNCH, "--run-dir", run, first}).code == 3);  // not without --resume
  const ProgramEnd proved =
      run_program({SMP_LAUNCH, "--dry-run", "--resume", "--run-dir", run, second});
  INFO(proved.err);
  CHECK(proved.code == 0);
  CHECK(proved.err.find(run + ": resume after step " + std::to_string(done)) != std::string::npos);
  Program resumed({SMP_LAUNCH, "--resume", "--run-dir", run, second});
  const ProgramEnd trained = resumed.wait(std::chrono::seconds(240));
  INFO(trained.err);
  CHECK(trained.code == 0);
  const std::vector<Json> metrics = lines_of(run + "/metrics.jsonl");
  REQUIRE(metrics.size() == 400);  // the job's steps, each once
  for (size_t i = 0; i < metrics.size(); ++i) CHECK(metrics[i].at("step") == i + 1);
  CHECK(read_file(run + "/plan.yaml") == read_file(second));
  CHECK(std::filesystem::exists(run + "/weights/model.safetensors"));
}

TEST_CASE("a plan for GPUs ends before training where there are none, with rank 0's cause") {
  const ScratchFolder folder;
  const std::string plan = folder / "plan.yaml", run = folder / "run";
  std::vector<std::string> planning = {SMP_PLAN, kJob, "-o", plan};
  add_pins(planning, {"cluster.device=cuda", "cluster.memory_per_process=4GiB"});
  REQUIRE(run_program(planning).code == 0);
  Program launched({SMP_LAUNCH, "--run-dir", run, plan},
                   {"SMP_CUDA_MODULE=/nowhere/libsmp_cuda.so"});
  const ProgramEnd ended = launched.wait(std::chrono::seconds(240));
  CHECK(ended.code == 3);
  CHECK(ended.err.find("rank 0") != std::string::npos);
  CHECK(
      ended.err.find("cluster.device is cuda, but /nowhere/libsmp_cuda.so does not exist: build") !=
      std::string::npos);
  CHECK(!std::filesystem::exists(run + "/metrics.jsonl"));
}
