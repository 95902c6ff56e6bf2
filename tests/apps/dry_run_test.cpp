#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "program.h"

// The forms of --dry-run against tests/golden/dry-run, byte for byte. SMP_WRITE_GOLDEN=1 in the
// environment writes them anew.

using namespace smp;

namespace {

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

std::string golden(const std::string& name) {
  return SMP_SOURCE_DIR "/tests/golden/dry-run/" + name;
}

// What differs from machine to machine is named in the golden texts.
std::string printed(const std::vector<std::string>& arguments, const ScratchFolder& folder) {
  const ProgramEnd end = run_program(joined({SMP_LAUNCH}, arguments), {"OMP_NUM_THREADS=1"});
  const bool has_checks = arguments.front() == "--dry-run=ranks";
  CHECK(end.err ==
        (has_checks ? "ok  program      /bin/echo\nall checks hold; nothing was started\n" : ""));
  CHECK(end.code == 0);
  return replaced(replaced(end.out, SMP_LAUNCH, "/BIN/smp-launch"), folder.path(), "/FOLDER");
}

void check_golden(const std::string& name, const std::string& text) {
  if (std::getenv("SMP_WRITE_GOLDEN") != nullptr) std::ofstream(golden(name)) << text;
  CHECK(text == read_file(golden(name)));
}

std::string error_of(const std::vector<std::string>& arguments, int code) {
  const ProgramEnd end = run_program(joined({SMP_LAUNCH}, arguments));
  CHECK(end.code == code);
  CHECK(end.out == "");
  return end.err.substr(0, end.err.find('\n'));
}

std::string plan_in(const ScratchFolder& folder, const std::vector<std::string>& options = {}) {
  REQUIRE(run_program(joined({SMP_PLAN, SMP_SOURCE_DIR "/tests/faults/job.yaml", "-o",
                              folder / "plan.yaml"},
                             options))
              .code == 0);
  return folder / "plan.yaml";
}

}  // namespace

TEST_CASE("every form of a dry run prints what the golden files hold, each time") {
  const ScratchFolder folder;
  const std::vector<std::string> program = {"--", "/bin/echo", "it's", "$(HOME) $$"};
  const std::map<std::string, std::vector<std::string>> cases = {
      {"program.txt", {"--dry-run=ranks", "-n", "2"}},
      {"hosts.json", {"--dry-run=json", "--hosts", "a:2,b@gpu=1"}},
      {"program.sh", {"--dry-run=sh", "-n", "2", "--run-dir", folder / "run"}},
      {"hosts.sh",
       {"--dry-run=sh", "--hosts", "a:2,b@gpu=1", "--env", "A=x y", "--env", "MY_TOKEN=secret"}},
      {"program.sbatch",
       {"--dry-run=sbatch", "-n", "1", "--timeout", "1h", "--show-ranks", "all", "--env",
        "MY_TOKEN=secret"}},
      {"hosts.sbatch",
       {"--dry-run=sbatch", "--hosts", "n[1-4]:2", "--job-name", "four", "--grace", "3s"}},
      {"program.jobset.yaml",
       {"--dry-run=jobset", "--nnodes", "2", "-n", "4", "--image", "registry.example/job:1"}},
      {"program.trainjob.yaml",
       {"--dry-run=trainjob", "--nnodes", "2", "-n", "4", "--image", "registry.example/job:1"}},
      {"program.lws.yaml",
       {"--dry-run=lws", "--nnodes", "2", "-n", "4", "--image", "registry.example/job:1"}},
      {"grace.jobset.yaml",
       {"--dry-run=jobset", "-n", "4", "--image", "registry.example/job:1", "--grace", "1m"}},
      {"grace.trainjob.yaml",
       {"--dry-run=trainjob", "-n", "4", "--image", "registry.example/job:1", "--grace", "1m"}},
      {"grace.lws.yaml",
       {"--dry-run=lws", "-n", "4", "--image", "registry.example/job:1", "--grace", "1m"}},
      {"grace.mpijob.yaml",
       {"--dry-run=mpijob", "-n", "4", "--image", "registry.example/job:1", "--grace", "1m"}},
      {"program.mpijob.yaml", {"--dry-run=mpijob", "-n", "4", "--image", "registry.example/job:1"}},
      {"restarts.jobset.yaml",
       {"--dry-run=jobset", "-n", "4", "--image", "registry.example/job:1", "--max-restarts", "2"}},
  };
  for (const auto& manifest : cases) {
    CAPTURE(manifest.first);
    const std::vector<std::string> words = joined(manifest.second, program);
    const std::string text = printed(words, folder);
    check_golden(manifest.first, text);
    CHECK(text == printed(words, folder));
    CHECK(text.find("secret'") == text.npos);
  }
  CHECK(!std::filesystem::exists(folder / "run"));
}

TEST_CASE("a dry run shows what --env gives the ranks, and no secret") {
  const ProgramEnd end =
      run_program({SMP_LAUNCH, "--dry-run=ranks", "-n", "2", "--env", "OMP_NUM_THREADS=3", "--env",
                   "THEME", "--env", "MY_TOKEN=hush", "--", "/bin/true"},
                  {"THEME=dark"});
  CHECK(end.code == 0);
  CHECK(end.out.find(" OMP_NUM_THREADS=3 THEME='<of this process>' MY_TOKEN='<secret>'\n") !=
        std::string::npos);
  CHECK(end.out.find("hush") == std::string::npos);
  for (const char* form : {"--dry-run", "--grace=3s"})
    CHECK(error_of({form, "-n", "2", "--env", "NOT_SET_ANYWHERE", "--", "/bin/true"}, 3) ==
          "smp-launch: --env NOT_SET_ANYWHERE: smp-launch's environment does not have this "
          "variable; to set a value, write --env NOT_SET_ANYWHERE=value");
}

TEST_CASE("a plan as a manifest needs neither its hosts nor its files here") {
  const ScratchFolder folder;
  const std::string plan = plan_in(folder, {"--set", "name=My_plan.v2"});
  const std::vector<std::string> saving = {"--dry-run=jobset",    "--image",   "i",
                                           "--checkpoint-signal", "USR1,TERM", plan};
  CHECK(error_of(saving, 3) ==
        "smp-launch: --checkpoint-signal TERM: Kubernetes kills a pod some time after SIGTERM: "
        "give the time limit of a checkpoint with --checkpoint-grace");
  const ProgramEnd saved = run_program(joined({SMP_LAUNCH, "--checkpoint-grace", "5m"}, saving));
  CHECK(contains(saved.out, "\n              terminationGracePeriodSeconds: 320\n"));
  for (const std::string form : {"jobset", "mpijob", "trainjob"})
    check_golden("preempted." + form + ".yaml",
                 printed({"--dry-run=" + form, "--image", "registry.example/job:1", "--run-dir",
                          "/shared/run", "--resume=if-any", "--max-restarts", "3",
                          "--checkpoint-signal", "TERM", "--checkpoint-grace", "5m", plan},
                         folder));
  for (const std::string form : {"jobset", "lws", "mpijob", "trainjob"})
    check_golden("plan." + form + ".yaml",
                 printed({"--dry-run=" + form, "--image", "registry.example/job:1", plan}, folder));
}

TEST_CASE("who makes the pods of a manifest again") {
  const ScratchFolder folder;
  const std::string plan = plan_in(folder);
  const std::vector<std::string> restarts = {"--image", "i", "--max-restarts", "3"};
  const auto words = [&](const std::string& form, const std::vector<std::string>& more) {
    return joined(joined({"--dry-run=" + form}, restarts), more);
  };
  // smp-launch itself, in an MPIJob that does not go on from a checkpoint.
  const std::string own =
      printed(words("mpijob", {"--restart-pause", "2s", "-n", "2", "--", "true"}), folder);
  CHECK(contains(own, "\n    backoffLimit: 0\n"));
  CHECK(contains(own, R"("--max-restarts", "3", "--restart-pause", "2s")"));
  for (const std::string form : {"jobset", "trainjob"}) {
    const std::string text =
        printed(words(form, {"--nnodes", "2", "-n", "2", "--", "true"}), folder);
    CHECK(contains(text, " maxRestarts: 3\n"));
    CHECK(!contains(text, "--max-restarts"));
    CHECK(error_of(words(form, {plan}), 2) ==
          "smp-launch: --max-restarts: the cluster restarts the pods with the same command: add "
          "--resume=if-any, so that the ranks resume from the last checkpoint");
    CHECK(error_of(words(form, {"--restart-pause", "1s", "-n", "2", "--", "true"}), 2) ==
          "smp-launch: --restart-pause is for restarts by smp-launch, but the cluster restarts "
          "these pods: leave the option out");
  }
  CHECK(error_of({"--nnodes", "2", "--node-rank", "0", "--rendezvous", "127.0.0.1:29400",
                  "--key-file", "k", "--max-restarts", "1", "-n", "2", "--", "true"},
                 2) ==
        "smp-launch: --max-restarts needs hosts that smp-launch reaches itself: name the hosts "
        "with --hosts");
}

TEST_CASE("scripts for the shell are whole, and run") {
  const ScratchFolder folder;
  const auto script = [&](const std::vector<std::string>& options, const std::string& text) {
    const ProgramEnd end = run_program(
        joined(joined({SMP_LAUNCH, "--dry-run=sh"}, options), {"--", "/bin/sh", "-c", text}));
    REQUIRE(end.code == 0);
    std::ofstream(folder / "job.sh") << end.out;
    CHECK(run_program({"/bin/bash", "-n", folder / "job.sh"}).err == "");
  };
  SUBCASE("one host") {
    script({"-n", "3"},
           "echo $RANK/$WORLD_SIZE $MASTER_ADDR ${#SMP_JOB_KEY} ${#SMP_JOB_ID} \"it's\"");
    const ProgramEnd end = run_program({"/bin/bash", folder / "job.sh"});
    CHECK(end.code == 0);
    CHECK(sorted_lines(end.out) == std::vector<std::string>{"0/3 127.0.0.1 64 16 it's",
                                                            "1/3 127.0.0.1 64 16 it's",
                                                            "2/3 127.0.0.1 64 16 it's"});
  }
  SUBCASE("each of two hosts") {
    script({"--hosts", "a:2,b:1", "--env", "A=x  y"},
           "echo $RANK $LOCAL_RANK $GROUP_RANK/$GROUP_WORLD_SIZE $MASTER_PORT \"$A\"");
    const std::vector<std::string> meeting = {"MASTER_ADDR=10.0.0.1", "MASTER_PORT=1234",
                                              "SMP_JOB_KEY=00"};
    CHECK(sorted_lines(run_program({"/bin/bash", folder / "job.sh", "0"}, meeting).out) ==
          std::vector<std::string>{"0 0 0/2 1234 x  y", "1 1 0/2 1234 x  y"});
    CHECK(run_program({"/bin/bash", folder / "job.sh", "1"}, meeting).out == "2 0 1/2 1234 x  y\n");
    CHECK(run_program({"/bin/bash", folder / "job.sh", "2"}, meeting).err ==
          "host 2: expected 0 to 1\n");
    CHECK(contains(run_program({"/bin/bash", folder / "job.sh", "1"}).err, "an address of host 0"));
  }
  SUBCASE("a rank that fails ends the others, and its code is the script's") {
    script({"-n", "3"}, "test $RANK = 1 && exit 7; exec sleep 300");
    const ProgramEnd end = run_program({"/bin/bash", folder / "job.sh"});
    CHECK(end.code == 7);
    CHECK(end.seconds < kSoonS);
  }
}

TEST_CASE("sbatch asks for the spares too, and its smp-launch takes them off") {
  const ScratchFolder folder;
  const std::string text = printed({"--dry-run=sbatch", "--hosts", "n[1-4]:2", "--spares", "1",
                                    "--max-restarts", "2", "--", "/bin/true"},
                                   folder);
  CHECK(contains(text, "#SBATCH --nodes=4\n"));
  CHECK(contains(text, "#SBATCH --nodelist=n1,n2,n3,n4\n"));
  CHECK(contains(text, " --spares 1 "));
}

TEST_CASE("the smp-launch of a script for Slurm orders its hosts as was said") {
  const ScratchFolder folder;
  const std::string file = folder / "topology.conf";
  std::ofstream(file) << "SwitchName=s0 Nodes=n[1,3]\nSwitchName=s1 Nodes=n[2,4]\n";
  const auto script = [&](const std::string& said) {
    return printed({"--dry-run=sbatch", "--hosts", "n[1-4]", "--topology", said, "--", "/bin/true"},
                   folder);
  };
  CHECK(contains(script("off"), " --hosts slurm -n 4 --topology off -- /bin/true\n"));
  CHECK(contains(script(file),
                 " --hosts slurm -n 4 --topology /FOLDER/topology.conf -- /bin/true\n"));
}

TEST_CASE("a dry run says that ranks are bound") {
  const ProgramEnd end =
      run_program({SMP_LAUNCH, "--dry-run", "-n", "2", "--bind", "core", "--", "/bin/true"});
  CHECK(contains(
      end.err,
      "ok  binding      each rank on its own cores, which its host chooses at the start\n"));
}

TEST_CASE("a dry run leaves out the checks that --skip names, and knows them all") {
  const ScratchFolder folder;
  const std::string plan =
      plan_in(folder, {"--set", "training.data.path=" + (folder / "not-there")});
  const ProgramEnd end = run_program({SMP_LAUNCH, "--dry-run", plan});
  CHECK(end.code == 3);
  CHECK(end.out == "");
  CHECK(contains(end.err, "\nNO  data  "));
  CHECK(contains(end.err, " checks failed; nothing was started\n"));
  const ProgramEnd skipped =
      run_program({SMP_LAUNCH, "--dry-run", "--skip", "data", "--skip", "worker", plan});
  CHECK(skipped.code == 0);
  CHECK(contains(skipped.err, "\n--  data         left out by --skip data\n"));
  CHECK(skipped.err.ends_with("all other checks hold; nothing was started\n"));
  CHECK(run_program({SMP_LAUNCH, "--dry-run=sbatch", "--skip", "data", "--skip", "worker", plan})
            .code == 0);
  CHECK(error_of({"--dry-run", "--skip", "dta", plan}, 2) ==
        "smp-launch: --skip 'dta': unknown check; the checks are plan, hosts, placement, degrees, "
        "batch, memory, engine, steps, proof, data, start, tokenizer, worker, order, pushed, "
        "program, run folder");
  CHECK(error_of({"--skip", "data", plan}, 2) ==
        "smp-launch: --skip is for --dry-run: a launch makes every check");
}

TEST_CASE("a dry run looks at the tokenizer that is to travel with the weights") {
  const ScratchFolder folder;
  const std::string path = folder / "tokenizer";
  const std::string plan = plan_in(folder, {"--set", "training.tokenizer=" + path});
  CHECK(contains(run_program({SMP_LAUNCH, "--dry-run", plan}).err,
                 "\nNO  tokenizer    training.tokenizer: " + path + " is not a folder\n"));
  std::filesystem::create_directory(path);
  std::ofstream(path + "/tokenizer.json") << R"({"model": {"vocab": {"a": 7}}})";
  CHECK(contains(run_program({SMP_LAUNCH, "--dry-run", plan}).err,
                 "\nok  tokenizer    " + path + ": a tokenizer, saved with the weights\n"));
}

TEST_CASE("a dry run of a plan without a limit of memory says so") {
  const ScratchFolder folder;
  const std::string plan = plan_in(folder, {"--set", "cluster.memory_per_process=0"});
  const ProgramEnd end = run_program({SMP_LAUNCH, "--dry-run", plan});
  CHECK(contains(end.err, "; no limit is given\n"));
  CHECK(!contains(end.err, " of 0.0 MiB"));
}

TEST_CASE("what cannot be written as a script or a manifest is refused") {
  const ScratchFolder folder;
  CHECK(error_of({"--dry-run=sbatch", "--hosts", "a:2,b:3", "--", "/bin/true"}, 3) ==
        "smp-launch: a scheduler gives every host the same number of ranks, but host 'a' has 2 and "
        "host 'b' has 3: give equal numbers");
  CHECK(error_of({"--dry-run=sbatch", "--hosts", "a@gpu=0", "--", "/bin/true"}, 3) ==
        "smp-launch: host 'a' has gpu=, but the scheduler chooses the GPUs: leave gpu= out");
  CHECK(error_of({"--dry-run=sbatch", "-n", "2", "--job-name", "a b", "--", "/bin/true"}, 3) ==
        "smp-launch: 'a b' is not a valid job name: give another with --job-name");
  CHECK(error_of({"--dry-run=sbatch", "-n", "2", "--", "no-such-program"}, 3) ==
        "smp-launch: 'no-such-program' was not found in PATH");
  CHECK(error_of({"--dry-run=mpijob", "-n", "2", "--", "true"}, 2) ==
        "smp-launch: a manifest needs --image, the container image that holds smp-launch and the "
        "job");
  CHECK(error_of({"--dry-run=mpijob", "--hosts", "a", "--image", "i", "--", "true"}, 2) ==
        "smp-launch: a manifest cannot name its hosts, whose pods do not exist yet: leave --hosts "
        "out, and give --nnodes for a program");
  CHECK(error_of({"--dry-run=mpijob", "-n", "1", "--image", "i", "--", "2fast"}, 3) ==
        "smp-launch: '2fast' is not a valid name for Kubernetes: expected small letters, digits "
        "and '-', beginning with a letter (--job-name)");
  const std::string name(60, 'a');
  CHECK(error_of({"--dry-run=mpijob", "-n", "1", "--image", "i", "--job-name", name, "--", "true"},
                 3) == "smp-launch: name '" + name +
                           "' is too long: the name of the last pod would be '" + name +
                           "-worker-0', 69 characters of at most 63 (--job-name)");
  CHECK(error_of(
            {"--dry-run=lws", "-n", "1", "--image", "i", "--job-name", name + "aa", "--", "true"},
            3) == "smp-launch: name '" + name +
                      "aa' is too long: the name of the last pod would be '" + name +
                      "aa-0-0', 66 characters of at most 63 (--job-name)");
  CHECK(error_of({"--dry-run=sh", "-n", "1", "--bind", "core", "--", "true"}, 2) ==
        "smp-launch: --dry-run=sh cannot bind ranks, because it does not look up the CPUs of the "
        "hosts: leave --bind out");
  for (const char* option : {"--timeout", "--grace", "--restart-pause"})
    CHECK(
        error_of({"--dry-run=sh", "-n", "1", "--max-restarts", "1", option, "1s", "--", "true"}, 2)
            .starts_with("smp-launch: --dry-run=sh writes a script that runs without smp-launch: "
                         "leave --"));
  CHECK(error_of({"--dry-run=sh", "-n", "1", "--report", "r", "--", "true"}, 2) ==
        "smp-launch: --dry-run=sh writes a script that runs without smp-launch: leave "
        "--report out");
  CHECK(error_of({"--dry-run=lws", "-n", "1", "--image", "i", "--max-restarts", "1", "--", "true"},
                 2) ==
        "smp-launch: --max-restarts: a LeaderWorkerSet always restarts its pods: leave "
        "--max-restarts out, or use --dry-run=jobset");
  CHECK(
      error_of({"--dry-run", "--hosts", "a@gpu=0", "--env", "CUDA_VISIBLE_DEVICES=1", "--", "true"},
               3) ==
      "smp-launch: both --env CUDA_VISIBLE_DEVICES and gpu= of host 'a' choose the GPUs: leave one "
      "of the two out");
  CHECK(error_of({"--dry-run", "-n", "1", "--visible-gpus", "one", "--env",
                  "CUDA_VISIBLE_DEVICES=1", "--", "true"},
                 3) ==
        "smp-launch: both --env CUDA_VISIBLE_DEVICES and --visible-gpus choose the GPUs: leave one "
        "of the two out");
  CHECK(
      error_of({"--dry-run", "--hosts", "a@gpu=0", "--visible-gpus", "none", "--", "true"}, 3) ==
      "smp-launch: --visible-gpus none, but gpu= of host 'a' gives GPUs: leave one of the two out");
  CHECK(error_of({"--dry-run", "-n", "1", "--visible-gpus", "two", "--", "true"}, 2) ==
        "smp-launch: --visible-gpus 'two': expected none, all-local or one");
  const std::string coming = run_program({SMP_LAUNCH, "--dry-run=ranks", "--nnodes", "2", "-n", "2",
                                          "--sagemaker-env", "--", "true"})
                                 .out;
  CHECK(contains(coming, "SM_HOSTS='<drawn at the start>'"));
  CHECK(contains(coming, "SM_CURRENT_HOST='<drawn at the start>'"));
  CHECK(error_of({"--dry-run", "-n", "1", "--sagemaker-env", "--env", "SM_HOSTS=[]", "--", "true"},
                 2) ==
        "smp-launch: --env SM_HOSTS and --sagemaker-env set the same variable: leave one of the "
        "two out");
  CHECK(error_of({"--dry-run=sh", plan_in(folder)}, 2) ==
        "smp-launch: --dry-run=sh of a plan needs --run-dir: the default folder's name has the "
        "time of the start");
  CHECK(error_of({"--dry-run=sh", "--run-dir", "r", "--resume=if-any", plan_in(folder)}, 2) ==
        "smp-launch: --dry-run=sh cannot look for a checkpoint when its script starts: give "
        "--resume, or leave --resume=if-any out");
}
