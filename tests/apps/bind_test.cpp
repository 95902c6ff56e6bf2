#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <thread>

#include "program.h"

// --bind, on this machine, and where a plan's ranks are placed.

using namespace smp;

namespace {

std::vector<std::string> bound(const std::vector<std::string>& options) {
  return joined(joined({SMP_LAUNCH, "--show-ranks", "all"}, options),
                {"--", "/bin/sh", "-c",
                 "echo $(grep Cpus_allowed_list /proc/self/status | cut -f2) $OMP_NUM_THREADS"});
}

}  // namespace

TEST_CASE("ranks run on the CPUs that --bind gives them, here and by agents") {
  const ProgramEnd one = run_program(bound({"-n", "1", "--bind", "core", "--report-bindings"}));
  if (contains(one.err, "libhwloc")) {
    MESSAGE("skipped: there is no libhwloc");
    return;
  }
  REQUIRE(one.code == 0);
  const std::string said = "smp-launch: rank 0 runs on CPUs ";
  REQUIRE(one.err.starts_with(said));
  const std::string cpus = one.err.substr(said.size(), one.err.find('\n') - said.size());
  CHECK(one.out.starts_with("[0] " + cpus + " "));
  const ProgramEnd agent = run_program(
      bound({"--hosts", "a,b", "--via", "local", "--bind", "core", "--report-bindings"}));
  CHECK(agent.out.find("[1] " + cpus + " ") != std::string::npos);
  CHECK(contains(agent.err, "smp-launch: rank 1 on host b runs on CPUs " + cpus + "\n"));
  const ProgramEnd many = run_program(bound({"-n", "4000", "--bind", "core"}));
  CHECK(many.code != 0);
  CHECK(contains(many.err, "--bind core: 4000 ranks, but "));
}

TEST_CASE("--bind and what belongs to it are read strictly") {
  const auto error_of = [](const std::vector<std::string>& options) {
    const ProgramEnd end =
        run_program(joined(joined({SMP_LAUNCH, "-n", "1"}, options), {"--", "true"}));
    CHECK(end.code == 2);
    return end.err.substr(0, end.err.find('\n'));
  };
  CHECK(error_of({"--bind", "socket"}) ==
        "smp-launch: --bind 'socket': expected numa, core, nic or none");
  CHECK(error_of({"--report-bindings"}) ==
        "smp-launch: --report-bindings needs --bind numa, nic or core");
  CHECK(error_of({"--tensor-across-hosts"}) == "smp-launch: --tensor-across-hosts is for plans");
}

TEST_CASE("a plan whose tensor groups cross hosts is refused unless it is allowed") {
  const ScratchFolder folder;
  const std::string configs = SMP_SOURCE_DIR "/configs", plan = folder / "plan.yaml";
  REQUIRE(run_program({SMP_PLAN, configs + "/models/llama2-7b.yaml", "--cluster",
                       configs + "/clusters/p4d.24xlarge.yaml", "--hosts", "2", "--set",
                       "parallel.tensor_parallel_degree=2", "--set",
                       "parallel.placement_strategy=spread", "--set",
                       "parallel.pipeline_parallel_degree=1", "--set",
                       "parallel.context_parallel_degree=1", "-o", plan})
              .code == 0);
  const std::vector<std::string> dry = {SMP_LAUNCH, "--dry-run", "--hosts", "a,b"};
  CHECK(contains(
      run_program(joined(dry, {plan})).err,
      "NO  placement    ranks 0 and 8 of one tensor group are on different hosts (0 and 1): plan "
      "with placement_strategy: cluster, or allow such groups with --tensor-across-hosts\n"));
  CHECK(contains(run_program(joined(dry, {"--tensor-across-hosts", plan})).err,
                 "ok  placement    tensor groups have ranks on several hosts\n"));
}

TEST_CASE("a plan on hosts with unequal slots: its ranks fill them in order") {
  const ScratchFolder folder;
  const std::string plan = folder / "plan.yaml";
  REQUIRE(run_program({SMP_PLAN, SMP_SOURCE_DIR "/tests/faults/job.yaml", "--hosts", "2", "--set",
                       "cluster.processes_per_host=4", "--set", "parallel.tensor_parallel_degree=2",
                       "-o", plan})
              .code == 0);
  const auto on = [&](const std::string& hosts) {
    return run_program(
        {SMP_LAUNCH, "--dry-run=ranks", "--run-dir", folder / "run", "--hosts", hosts, plan});
  };
  const ProgramEnd uneven = on("big:4,a:2,b:2");
  CHECK(
      contains(uneven.err,
               "ok  hosts        3 hosts with 4 + 2 + 2 ranks; times and traffic are predicted for "
               "2 hosts with 4 each\nok  placement    every tensor group is on one host\n"));
  CHECK(contains(uneven.out, "rank 3 on host big: "));
  CHECK(contains(uneven.out, "rank 4 on host a: "));
  CHECK(contains(on("big:5,small:3").err,
                 "NO  placement    ranks 4 and 5 of one tensor group are on different hosts (0 "
                 "and 1): "));
  CHECK(on("big:4,a:2,b:1").err ==
        "smp-launch: the plan has 8 ranks, but the hosts have 7 slots: give as many slots as "
        "ranks, or plan again\n");
}

TEST_CASE("the GPUs that a rank sees, and what SageMaker says of its host") {
  const auto seen = [](const std::vector<std::string>& options,
                       const std::vector<std::string>& environment = {}) {
    const std::vector<std::string> without = {"/usr/bin/env", "-u", "CUDA_VISIBLE_DEVICES", "-u",
                                              "SM_HOSTS",     "-u", "SM_CURRENT_HOST"};
    const ProgramEnd end = run_program(joined(
        joined(joined(joined(without, environment), {SMP_LAUNCH, "--show-ranks", "all"}), options),
        {"--", "/bin/sh", "-c", "echo ${CUDA_VISIBLE_DEVICES-unset} $SM_HOSTS $SM_CURRENT_HOST"}));
    std::string text = end.code == 0 ? "" : end.err;
    for (const std::string& line : sorted_lines(end.out)) text += line + "; ";
    return text;
  };
  const std::vector<std::string> two = {"--hosts", "a:1,b@gpu=3,5", "--via", "local"};
  const std::vector<std::string> own = {"CUDA_VISIBLE_DEVICES=GPU-a,GPU-b"};
  CHECK(seen(joined(two, {"--visible-gpus", "one"})) == "[0] 0; [1] 3; [2] 5; ");
  CHECK(contains(seen(joined(two, {"--visible-gpus", "all-local"})), "[1] 3,5; [2] 3,5; "));
  CHECK(seen({"-n", "2", "--visible-gpus", "one"}, own) == "[0] GPU-a; [1] GPU-b; ");
  CHECK(seen({"-n", "2"}, own) == "[0] GPU-a,GPU-b; [1] GPU-a,GPU-b; ");
  CHECK(seen({"-n", "1", "--visible-gpus", "none"}, own) == "[0] ; ");
  CHECK(seen({"-n", "3", "--visible-gpus", "one"}, own) ==
        "smp-launch: --visible-gpus one: this host has 3 ranks, but "
        "CUDA_VISIBLE_DEVICES=GPU-a,GPU-b has 2: start fewer ranks, or unset the variable\n");
  const ScratchFolder folder;
  const std::string unused = folder / "run";
  CHECK(contains(seen({"-n", "3", "--visible-gpus", "one", "--run-dir", unused}, own), "has 2:"));
  CHECK(!std::filesystem::exists(unused));
  CHECK(seen({"--hosts", "a@gpu=0,1,2,b@gpu=0,1,2,c", "--spares", "1", "--max-restarts", "1",
              "--via", "local", "--visible-gpus", "one"},
             own) ==
        "smp-launch: --visible-gpus one: host 'c' has 3 ranks, but "
        "CUDA_VISIBLE_DEVICES=GPU-a,GPU-b has 2: start fewer ranks, or unset the variable\n");
  CHECK(!contains(seen({"--hosts", "a@gpu=0,1,2,c:2", "--spares", "1", "--max-restarts", "1",
                        "--via", "local", "--visible-gpus", "one"},
                       own),
                  "names 2"));  // c has no room for three ranks
  CHECK(seen({"--hosts", "a:1,b:1", "--via", "local", "--sagemaker-env", "--visible-gpus",
              "none"}) == "[0] [\"a\",\"b\"] a; [1] [\"a\",\"b\"] b; ");
}
