#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "program.h"

// Every broken command line of smp-launch with its whole answer.

using namespace smp;

TEST_CASE("broken command lines are answered with what to type instead") {
  struct Case {
    std::vector<std::string> arguments;
    std::string text;
  };
  const std::string forms =
      "both a plan ('plan.yaml') and a program ('true') are given: give only one";
  const std::vector<Case> cases = {
      {{},
       "nothing to launch: give a plan (smp-launch plan.yaml) or a program (smp-launch -n 4 -- "
       "program arguments)"},
      {{"--"}, "no program behind '--'"},
      {{"-n", "4", "--"}, "no program behind '--'"},
      {{"--", "true", "-x"},
       "the number of ranks is missing: give -n, as in smp-launch -n 4 -- true -x"},
      {{"-n", "2", "true"},
       "-n is for programs, and a plan sets its own number of ranks: leave -n out, or put '--' "
       "before a program, as in smp-launch -n 2 -- true"},
      {{"-n", "2", "python3", "train.py"},
       "unexpected argument 'train.py' after 'python3': give one plan, or a program after '--', as "
       "in smp-launch -n 4 -- python3 train.py"},
      {{"-n", "2", "plan.yaml", "--", "true"}, forms},
      {{"-n", "0", "--", "true"}, "-n '0': expected a number of ranks from 1 to 4096"},
      {{"-n", "-1", "--", "true"}, "-n '-1': expected a number of ranks from 1 to 4096"},
      {{"-n", "four", "--", "true"}, "-n 'four': expected a number of ranks from 1 to 4096"},
      {{"-n", "4.5", "--", "true"}, "-n '4.5': expected a number of ranks from 1 to 4096"},
      {{"-n", "99999999999", "--", "true"},
       "-n '99999999999': expected a number of ranks from 1 to 4096"},
      {{"-n", "1", "--gace", "5s", "--", "true"},
       "unknown option '--gace', did you mean '--grace'?"},
      {{"--dryrun", "plan.yaml"}, "unknown option '--dryrun', did you mean '--dry-run'?"},
      {{"--run_dir=x", "plan.yaml"}, "unknown option '--run_dir', did you mean '--run-dir'?"},
      {{"--nproc-per-node", "4", "plan.yaml"}, "unknown option '--nproc-per-node'"},
      {{"-x", "plan.yaml"}, "unknown option '-x'"},
      {{"--dry-run=yaml", "plan.yaml"},
       "--dry-run=yaml: expected --dry-run or "
       "--dry-run=text|ranks|json|sh|sbatch|jobset|mpijob|trainjob|lws"},
      {{"-n", "1", "--grace", "soon", "--", "true"},
       "--grace 'soon' is not a duration: write it like 250ms, 5s, 2m or 1h"},
      {{"-n", "1", "--grace=-1s", "--", "true"},
       "--grace '-1s' is not a duration: write it like 250ms, 5s, 2m or 1h"},
      {{"-n", "1", "--timeout", "5 s", "--", "true"},
       "--timeout '5 s' is not a duration: write it like 250ms, 5s, 2m or 1h"},
      {{"-n", "1", "--timeout", "1d", "--", "true"},
       "--timeout '1d' is not a duration: write it like 250ms, 5s, 2m or 1h"},
      {{"--comm-timeout", "1e99s", "plan.yaml"},
       "--comm-timeout '1e99s' is not a duration: write it like 250ms, 5s, 2m or 1h"},
      {{"--comm-timeout", "0", "plan.yaml"}, "--comm-timeout 0: expected a time of at least 1ms"},
      {{"--build-only=-1", "plan.yaml"},
       "--build-only=-1: expected --build-only or --build-only=RANK, as in --build-only=7"},
      {{"--build-only", "--dry-run", "plan.yaml"},
       "--build-only builds one rank on this host: leave --dry-run out"},
      {{"--build-only", "--comm-timeout", "1s", "plan.yaml"},
       "--build-only builds one rank on this host: leave --comm-timeout out"},
      {{"--build-only", "--run-dir", "r", "plan.yaml"},
       "--build-only builds one rank on this host: leave --run-dir out"},
      {{"--build-only", "-n", "2", "--", "true"},
       "--build-only is for plans: a program has no predicted memory"},
      {{"--resume", "plan.yaml"},
       "--resume needs the run's folder, as in --resume --run-dir runs/a"},
      {{"--resume=soon", "--run-dir", "r", "plan.yaml"},
       "--resume=soon: expected --resume, --resume=if-any or --resume=STEP, as in --resume=100"},
      {{"-n", "1", "--resume", "--run-dir", "r", "--", "true"},
       "--resume is for plans: a program loads its own checkpoints"},
      {{"-n", "1", "--comm-timeout", "1s", "--", "true"},
       "--comm-timeout is for plans: a program has time-outs of its own"},
      {{"-n", "1", "--prefix", "{rank", "--", "true"},
       "--prefix '{rank': unmatched '{': write {{ for a brace"},
      {{"-n", "1", "--prefix", "a\n", "--", "true"},
       "--prefix: the text has a line end: remove it"},
      {{"-n", "1", "--logs", "node", "--", "true"}, "--logs node: expected rank, host or both"},
      {{"-n", "1", "--logs", "host", "--", "true"},
       "logs of a program need a folder: give --run-dir, as in --run-dir runs/a"},
      {{"--logs", "host", "--log-name", "{rank}.{stream}", "plan.yaml"},
       "--log-name is for logs of ranks, which --logs host does not write: leave one of the two "
       "out"},
      {{"--log-name", "{rank}.log", "plan.yaml"},
       "--log-name '{rank}.log': expected a name with {rank} and {stream}, so that each log has "
       "its own file"},
      {{"--log-name", "a/{rank}.{stream}", "plan.yaml"},
       "--log-name 'a/{rank}.{stream}': expected the name of a file in the run's logs/, without "
       "'/' and {time}"},
      {{"--log-size", "1", "plan.yaml"},
       "--log-size '1': expected a size of at least 64KiB, as in 100MiB"},
      {{"--log-keep", "3", "plan.yaml"}, "--log-keep is for --log-size: give both"},
      {{"--log-size", "1MiB", "--log-keep", "-1", "plan.yaml"},
       "--log-keep '-1': expected a whole number from 0 to 1000"},
      {{"--hang-timeout", "0", "plan.yaml"},
       "--hang-timeout 0: expected a time above 0, auto or off"},
      {{"--hang-timeout", "long", "plan.yaml"},
       "--hang-timeout 'long' is not a duration: write it like 250ms, 5s, 2m or 1h"},
      {{"--max-restarts", "-1", "plan.yaml"},
       "--max-restarts '-1': expected a whole number from 0 to 1000000"},
      {{"--restart-pause", "1s", "plan.yaml"}, "--restart-pause is for --max-restarts: give both"},
      {{"--spares", "1", "--max-restarts", "1", "plan.yaml"},
       "--spares is for jobs on other hosts: name the hosts with --hosts or --hostfile"},
      {{"--checkpoint-signal", "KILL", "plan.yaml"},
       "--checkpoint-signal 'KILL': expected a list of USR1, USR2, TERM, INT, HUP and QUIT, as in "
       "USR1,TERM"},
      {{"-n", "1", "--checkpoint-grace", "1s", "--", "true"},
       "--checkpoint-grace is for plans: a program gets the signals itself"},
      {{"--silence-timeout", "1m", "plan.yaml"},
       "--silence-timeout is for programs: the ranks of a plan report their progress"},
      {{"--silence-timeout", "0", "-n", "1", "--", "true"},
       "--silence-timeout 0: expected a time above 0; leave the option out for no time-out"},
      {{"--on-hang", "wait", "plan.yaml"}, "--on-hang wait: expected print or end"},
      {{"--hang-dump", "all", "plan.yaml"},
       "--hang-dump all: expected none, calls, quit, gdb or py-spy"},
      {{"--hang-dump", "gdb", "--hang-timeout", "off", "plan.yaml"},
       "--hang-dump needs a time-out, but --hang-timeout is off: give a time"},
      {{"--hang-dump", "calls", "-n", "1", "--", "true"},
       "--hang-dump calls is for plans: for a program use gdb, py-spy or quit"},
      {{"--hang-dump", "quit", "-n", "1", "--", "true"},
       "--hang-dump quit is for programs and needs --on-hang end: SIGQUIT ends a program that has "
       "no handler for it"},
      {{"--on-hang", "end", "--hang-timeout", "off", "plan.yaml"},
       "--on-hang end needs a time-out, but --hang-timeout is off: give a time"},
      {{"--run-dir", "", "plan.yaml"}, "--run-dir: the value is empty"},
      {{"--report", "", "plan.yaml"}, "--report: the value is empty"},
      {{"--prometheus", "", "plan.yaml"}, "--prometheus: the value is empty"},
      {{"--completion", "tcsh"}, "completion is for bash, zsh or fish, not 'tcsh'"},
      {{"-n", "2", "--via", "local", "--", "true"},
       "--via is for jobs on other hosts: name the hosts with --hosts or --hostfile"},
      {{"-n", "2", "--env-all", "--", "true"},
       "--env-all is for jobs on other hosts: name the hosts with --hosts or --hostfile"},
      {{"--hosts", "a", "--hostfile", "h", "--", "true"},
       "--hosts and --hostfile exclude each other: leave one of the two out"},
      {{"--hosts", "local", "--exclude", "a", "-n", "1", "--", "true"},
       "--exclude is for jobs on other hosts: name the hosts with --hosts or --hostfile"},
      {{"--hosts", "a", "--via", "rsh", "--", "true"},
       "--via 'rsh': expected ssh, srun, mpirun, local or exec:COMMAND"},
      {{"--hosts", "a", "--via", "local", "--ssh-args", "-v", "--", "true"},
       "--ssh-args cannot be used with --via local: it needs --via ssh"},
      {{"--hosts", "a", "--mpirun-args", "-v", "--", "true"}, "--mpirun-args is for --via mpirun"},
      {{"--hosts", "a", "--via", "mpirun", "--ssh-args", "-v", "--", "true"},
       "--ssh-args cannot be used with --via mpirun: give arguments of mpirun with --mpirun-args"},
      {{"--hosts", "a", "--via", "mpirun", "--fan-out", "4", "--", "true"},
       "--fan-out: mpirun itself reaches all hosts: leave --fan-out out"},
      {{"--hosts", "a", "--via", "srun", "--fan-out", "4", "--", "true"},
       "--fan-out: srun itself reaches all hosts: leave --fan-out out"},
      {{"--hosts", "slurm", "--fan-out", "4", "--", "true"},
       "--fan-out: srun itself reaches all hosts: leave --fan-out out"},
      {{"--check", "--hosts", "a", "--via", "mpirun"},
       "--check cannot reach hosts through mpirun: leave --via mpirun out"},
      {{"--hosts", "a", "--ssh-args", "-o 'x", "--", "true"},
       "--ssh-args '-o 'x': a quote is not closed"},
      {{"--hosts", "a", "--host-timeout", "100ms", "--", "true"},
       "--host-timeout '100ms': expected at least 500 ms"},
      {{"--hosts", "a", "--fan-out", "1", "--", "true"},
       "--fan-out '1': expected a whole number from 2 to 1024"},
      {{"-n", "2", "--fan-out", "8", "--", "true"},
       "--fan-out is for jobs on other hosts: name the hosts with --hosts or --hostfile"},
      {{"-n", "1", "--env", "=x", "--", "true"},
       "--env '=x': expected NAME=value, or NAME to pass on smp-launch's value"},
      {{"--hosts", "a", "--build-only", "plan.yaml"},
       "--build-only builds one rank on this host: leave --hosts out"},
      {{"--status", "r", "--timeout", "1s"}, "--status starts nothing: leave --timeout out"},
      {{"--status", "r", "plan.yaml"},
       "--status starts nothing: leave the plan or the program out"},
      {{"-n", "1", "--env", "WORLD_SIZE=99", "--", "true"},
       "--env WORLD_SIZE: smp-launch sets this variable itself: leave it out"},
      {{"-n", "1", "--", ""}, "the program behind '--' has an empty name"},
      {{"plan.yaml", "--run-dir"}, "--run-dir needs a value"},
      {{"-n"}, "-n needs a value"},
      {{"-n", "1", "-n", "2", "--", "true"}, "-n is given more than once"},
      {{"--version=3"}, "--version takes no value"},
  };
  for (const Case& one : cases) {
    std::vector<std::string> command = {SMP_LAUNCH};
    command.insert(command.end(), one.arguments.begin(), one.arguments.end());
    const ProgramEnd end = run_program(command);
    CHECK(end.err == "smp-launch: " + one.text + "\nSee smp-launch --help.\n");
    CHECK(end.code == 2);
    CHECK(end.out == "");
  }
}

TEST_CASE("rank lists are checked against the number of ranks before anything starts") {
  const auto error_of = [](const std::string& list) {
    const ProgramEnd end =
        run_program({SMP_LAUNCH, "-n", "4", "--show-ranks", list, "--", "/bin/true"});
    CHECK(end.code == 3);
    return end.err;
  };
  CHECK(error_of("4") == "smp-launch: '4' names rank 4, but the job has 4 ranks: 0-3\n");
  CHECK(error_of("2-9") == "smp-launch: '2-9' names rank 9, but the job has 4 ranks: 0-3\n");
  for (const char* list : {"", "x", "1,", ",1", "3-1", "1-", "-1", "0 1", "0,,1"})
    CHECK(error_of(list) ==
          "smp-launch: '" + std::string(list) +
              "' is not a list of ranks: write it like all, none, 0,2-3,last or 0-62:8\n");
}

TEST_CASE("plans that cannot be launched") {
  ScratchFolder folder;
  const std::string job = SMP_SOURCE_DIR "/tests/faults/job.yaml";
  const auto refusal = [](const std::string& plan) {
    const ProgramEnd end = run_program({SMP_LAUNCH, plan});
    CHECK(end.code == 3);
    CHECK(end.out == "");
    return end.err;
  };
  CHECK(refusal("/no/such/plan.yaml") ==
        "smp-launch: /no/such/plan.yaml: No such file or directory\n");
  CHECK(refusal("/usr") == "smp-launch: /usr: this is a folder; name the plan file in it\n");
  CHECK(refusal(job) == "smp-launch: " + job + ": this is a job file: run smp-plan " + job +
                            " -o plan.yaml first\n");

  const std::string plan = folder / "plan.yaml";
  REQUIRE(run_program({SMP_PLAN, job, "-o", plan}).code == 0);
  std::string text = read_file(plan);
  const size_t at = text.find("steps: 400");
  REQUIRE(at != text.npos);
  std::ofstream(folder / "edited.yaml") << text.replace(at, 10, "steps: 401");
  CHECK(refusal(folder / "edited.yaml").find("the plan was edited after smp-plan wrote it") !=
        std::string::npos);

  const std::string configs = SMP_SOURCE_DIR "/configs";
  REQUIRE(run_program({SMP_PLAN, configs + "/models/llama2-7b.yaml", "--cluster",
                       configs + "/clusters/p4d.24xlarge.yaml", "--hosts", "2", "-o",
                       folder / "two.yaml"})
              .code == 0);
  CHECK(refusal(folder / "two.yaml") ==
        "smp-launch: the plan is for 2 hosts: name the hosts, as in smp-launch --hosts node[1-2] " +
            (folder / "two.yaml") +
            ", or plan again with cluster.hosts: 1, as in smp-plan JOB --hosts 1\n");
}

TEST_CASE("a dry run of a plan proves it, and prints each rank's place where asked") {
  ScratchFolder folder;
  const std::string plan = folder / "plan.yaml";
  REQUIRE(run_program({SMP_PLAN, SMP_SOURCE_DIR "/tests/faults/job.yaml", "--set",
                       "parallel.tensor_parallel_degree=2", "--set",
                       "parallel.pipeline_parallel_degree=2", "-o", plan})
              .code == 0);
  const ProgramEnd end =
      run_program({SMP_LAUNCH, "--dry-run=ranks", "--run-dir", folder / "run", plan});
  const auto says = [&](const std::string& text) {
    return (end.out + end.err).find(text) != std::string::npos;
  };
  CHECK(says("ok  plan         " + plan + ", unchanged since written\n"));
  CHECK(says("ok  degrees      pipeline 2 x tensor 2 x data 1 (shard 1 x replica 1) = 4 ranks\n"));
  CHECK(
      says("ok  batch        micro batch 1 x microbatches 2 x data 1 = 2 samples x sequence 32 = "
           "64 tokens\n"));
  CHECK(says("all sends matched, no deadlock, memory bounds kept\n"));
  CHECK(says("ok  run folder   " + (folder / "run") + "\n"));
  CHECK(says("rank 3: pipeline 1, tensor 1, shard 0, replica 0\n  RANK=3 LOCAL_RANK=3 "));
  CHECK(says("SMP_JOB_KEY='<secret>'"));
  CHECK(!std::filesystem::exists(folder / "run"));
  const ProgramEnd again =
      run_program({SMP_LAUNCH, "--dry-run", "--run-dir", folder / "run", plan});
  CHECK(again.out == "");
  CHECK(again.err == end.err);
  CHECK(again.err.ends_with("; nothing was started\n"));  // builds without torch have no worker
}

TEST_CASE("--help starts with what it does and examples: --version is one line") {
  const ProgramEnd help = run_program({SMP_LAUNCH, "--help"});
  CHECK(help.code == 0);
  CHECK(
      help.out.starts_with("Starts the ranks of a job on this host or on many hosts, watches them "
                           "until all have ended, and reports\nthe cause of a failure.\n\n"
                           "Examples:\n  smp-launch plan.yaml "));
  CHECK(contains(help.out, "  --resume[=STEP|if-any]"));
  CHECK(contains(help.out, "  --dry-run[=FORM]"));
  const ProgramEnd version = run_program({SMP_LAUNCH, "--version"});
  CHECK(version.out == "smp-launch 0.1.0\n");
  CHECK(version.code == 0);
}

TEST_CASE("completions know every option") {
  const ProgramEnd bash = run_program({SMP_LAUNCH, "--completion", "bash"});
  CHECK(bash.code == 0);
  CHECK(bash.out.find("complete -o filenames -F _smp_launch smp-launch\n") != bash.out.npos);
  for (const char* option : {"--hosts", "--hostfile", "--via", "--env-file", "--dry-run", "-n"})
    CHECK(bash.out.find(option) != bash.out.npos);
  ScratchFolder folder;
  std::ofstream(folder / "script") << bash.out;
  CHECK(run_program({"/bin/bash", "-n", folder / "script"}).err == "");
  const ProgramEnd fish = run_program({SMP_LAUNCH, "--completion", "fish"});
  CHECK(fish.out.find("complete -c smp-launch -n 'true' -l hosts ") != fish.out.npos);
  CHECK(run_program({SMP_LAUNCH, "--completion", "zsh"}).out.starts_with("#compdef smp-launch\n"));
}

TEST_CASE("a dry run of a program prints ranks, environment and command, and starts nothing") {
  ScratchFolder folder;
  const ProgramEnd end = run_program({SMP_LAUNCH, "--dry-run=ranks", "-n", "2", "--",
                                      "/usr/bin/touch", folder / "started", "it's"},
                                     {"OMP_NUM_THREADS=1"});
  CHECK(end.code == 0);
  CHECK(end.err ==
        "ok  program      /usr/bin/touch\n"
        "all checks hold; nothing was started\n");
  CHECK(end.out ==
        "every rank\n"
        "  WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 GROUP_RANK=0 GROUP_WORLD_SIZE=1 NODE_RANK=0 "
        "ROLE_NAME=default ROLE_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 "
        "MASTER_PORT='<drawn at the start>' TORCHELASTIC_RUN_ID='<drawn at the start>' "
        "TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_MAX_RESTARTS=0 SMP_JOB_ID='<drawn at the "
        "start>' SMP_JOB_KEY='<secret>'\n"
        "  /usr/bin/touch " +
            (folder / "started") +
            " 'it'\\''s'\n"
            "rank 0\n"
            "  RANK=0 LOCAL_RANK=0 ROLE_RANK=0\n"
            "rank 1\n"
            "  RANK=1 LOCAL_RANK=1 ROLE_RANK=1\n");
  CHECK(!std::filesystem::exists(folder / "started"));
  const ProgramEnd missing =
      run_program({SMP_LAUNCH, "--dry-run", "-n", "1", "--", "no-such-program"});
  CHECK(missing.code == 3);
  CHECK(missing.err.starts_with("NO  program      'no-such-program' was not found in PATH\n"));
}

TEST_CASE("a plan without steps is for planning only") {
  const ScratchFolder folder;
  const std::string plan = folder / "plan.yaml";
  REQUIRE(run_program({SMP_PLAN, SMP_SOURCE_DIR "/tests/faults/job.yaml", "--set",
                       "training.steps=0", "-o", plan})
              .code == 0);
  const ProgramEnd end = run_program({SMP_LAUNCH, "--run-dir", folder / "run", plan});
  CHECK(end.code == 3);
  CHECK(end.err.find("training.steps is 0, which is for planning only: set training.steps, as in "
                     "smp-plan JOB --set training.steps=1000") != std::string::npos);
}

TEST_CASE("output that nobody could write is a failure") {
  const ProgramEnd end = run_program({"/bin/sh", "-c", SMP_LAUNCH " --help >/dev/full"});
  CHECK(end.code == 1);
  CHECK(end.err == "smp-launch: cannot write to standard output: No space left on device\n");
  for (const char* arguments : {"--help", "--version", "report --help", "doctor"}) {
    CAPTURE(arguments);
    const ProgramEnd closed =
        run_program({"/bin/sh", "-c", std::string(SMP_LAUNCH) + " " + arguments + " >&-"});
    CHECK(closed.code == 1);
    CHECK(closed.err == "smp-launch: cannot write to standard output: Bad file descriptor\n");
  }
  // Ranks do not need it.
  CHECK(run_program({"/bin/sh", "-c", SMP_LAUNCH " -n 1 -- true >&-"}).code == 0);
}

TEST_CASE("what smp-launch is started with and cannot work with is said by name") {
  const std::string launch = std::string(SMP_LAUNCH) + " -n 1 -- true";
  const auto with = [&](const std::string& limit) {
    return run_program({"/bin/bash", "-c", limit + " && exec " + launch});
  };
  const ProgramEnd stack = with("ulimit -s 64");
  CHECK(stack.code == 125);
  CHECK(stack.err ==
        "smp-launch: the limit of the stack is 64 KiB (ulimit -s), but at least 512 KiB are "
        "needed: raise it, as in ulimit -s 8192\n");
  CHECK(with("ulimit -s 512").code == 0);
#ifdef __SANITIZE_ADDRESS__
  return;  // the sanitizer itself reads /proc and opens pipes
#endif
  const ProgramEnd files = with("ulimit -n 8");
  CHECK(files.code == 125);
  CHECK(files.err ==
        "smp-launch: the limit of open files is 8 (ulimit -n), but at least 32 are needed: raise "
        "it, as in ulimit -n 1024\n");
  CHECK(with("ulimit -n 32").code == 0);
  if (run_program({"/usr/bin/unshare", "-m", "mount", "-t", "tmpfs", "none", "/proc"}).code != 0) {
    MESSAGE("no mount namespace here: a machine without /proc is not tried");
    return;
  }
  const ProgramEnd bare = run_program(
      {"/usr/bin/unshare", "-m", "/bin/sh", "-c", "mount -t tmpfs none /proc && exec " + launch});
  CHECK(bare.code == 125);
  CHECK(bare.err ==
        "smp-launch: /proc/self/exe: No such file or directory: smp-launch finds its program file "
        "and the processes of its ranks in /proc: mount /proc, as in mount -t proc proc /proc\n");
}
