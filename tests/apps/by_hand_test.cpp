#include <doctest/doctest.h>
#include <fmt/format.h>
#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <memory>

#include "held_port.h"
#include "program.h"

// smp-launch where others have started it: by hand on each host, under mpirun, on SageMaker. All
// hosts are this machine.

using namespace smp;

namespace {

struct Rendezvous {
  ScratchFolder folder;
  HeldPort port;
  std::string place = fmt::format("127.0.0.1:{}", port.number());
  std::string key = folder / "key";

  Rendezvous() {
    std::ofstream(key) << "a secret of the test's own\n";
    chmod(key.c_str(), 0600);
  }
  std::vector<std::string> words(int hosts, int rank) const {
    return {SMP_LAUNCH,    "--nnodes",           std::to_string(hosts),
            "--node-rank", std::to_string(rank), "--rendezvous",
            place,         "--key-file",         key};
  }
};

std::vector<std::string> shell(const std::string& script) {
  return {"--", "/bin/sh", "-c", script};
}

std::vector<std::string> of_mpi(int rank, int size, int local_size) {
  return {fmt::format("OMPI_COMM_WORLD_RANK={}", rank),
          fmt::format("OMPI_COMM_WORLD_SIZE={}", size),
          fmt::format("OMPI_COMM_WORLD_LOCAL_RANK={}", rank % local_size),
          fmt::format("OMPI_COMM_WORLD_LOCAL_SIZE={}", local_size)};
}

}  // namespace

TEST_CASE("torchrun's words on each of two hosts, with a key, are one job") {
  const Rendezvous rendezvous;
  const auto start = [&](int rank) {
    return std::vector<std::string>{SMP_LAUNCH,
                                    "--torchrun-compat",
                                    "--nnodes=2",
                                    "--nproc-per-node=2",
                                    fmt::format("--node-rank={}", rank),
                                    "--master-addr=127.0.0.1",
                                    fmt::format("--master-port={}", rendezvous.port.number()),
                                    fmt::format("--key-file={}", rendezvous.key),
                                    "--no-python",
                                    "/bin/sh",
                                    "-c",
                                    "echo $RANK/$WORLD_SIZE $LOCAL_RANK $GROUP_RANK"};
  };
  Program second(start(1));
  const ProgramEnd end = run_program(start(0));
  CHECK(end.code == 0);
  CHECK(sorted_lines(end.out) ==
        std::vector<std::string>{"[0] 0/4 0 0", "[1] 1/4 1 0", "[2] 2/4 0 1", "[3] 3/4 1 1"});
  CHECK(second.wait().code == 0);
}

TEST_CASE("a start by hand on each of three hosts is one job") {
  const Rendezvous rendezvous;
  const auto start = [&](int rank, const std::string& script) {
    return joined(joined(rendezvous.words(3, rank), {"-n", "6", "--show-ranks", "all"}),
                  shell(script));
  };
  const std::string ready = rendezvous.folder / "ready";
  // Only what the first host says counts.
  Program second(start(1, "echo wrong")), third(start(2, "echo wrong"));
  SUBCASE("a good end") {
    const ProgramEnd end = run_program(
        start(0, "echo $RANK $LOCAL_RANK $WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE $MASTER_ADDR"));
    CHECK(end.err == "");
    CHECK(end.code == 0);
    std::vector<std::string> expected;
    for (int rank = 0; rank < 6; ++rank)
      expected.push_back(fmt::format("[{0}] {0} {1} 6 {2}/3 127.0.0.1", rank, rank % 2, rank / 2));
    CHECK(sorted_lines(end.out) == expected);
    CHECK(second.wait().code == 0);
    CHECK(third.wait().code == 0);
  }
  SUBCASE("SageMaker's variables say the names that the hosts bring") {
    std::array<char, HOST_NAME_MAX + 1> name{};
    gethostname(name.data(), name.size() - 1);
    const std::vector<std::string> first =
        joined(rendezvous.words(3, 0), {"-n", "3", "--sagemaker-env", "--show-ranks", "2"});
    CHECK(run_program(joined(first, shell("echo $SM_CURRENT_HOST $SM_HOSTS"))).out ==
          fmt::format("[2] {0} [\"{0}\",\"{0}\",\"{0}\"]\n", name.data()));
  }
  SUBCASE("a failure") {
    const ProgramEnd end = run_program(start(0, "test $RANK = 5 && exit 9; sleep 300"));
    CHECK(end.code == 9);
    CHECK(contains(end.err, "smp-launch: rank 5 on host node2 ("));
    CHECK(second.wait().out == "");
  }
  SUBCASE("a host that dies") {
    Program first(start(0, "echo up >> " + ready + "; sleep 300"));
    wait_for_lines(ready, 6);
    third.signal(SIGKILL);
    const ProgramEnd end = first.wait();
    CHECK(end.code == 125);
    CHECK(contains(end.err, "smp-launch: host node2 ("));
    CHECK(contains(end.err, ") was lost with ranks 4, 5, "));
    CHECK(contains(end.err, "the connection to its agent ended\n"));
  }
  SUBCASE("the first host dies") {
    Program first(start(0, "echo up >> " + ready + "; sleep 300"));
    wait_for_lines(ready, 6);
    first.signal(SIGKILL);
    second.wait();  // throws if it stays
    third.wait();
  }
}

TEST_CASE("a start by hand that is not whole is refused") {
  const Rendezvous rendezvous;
  const auto error_of = [](const std::vector<std::string>& words, int code) {
    const ProgramEnd end = run_program(joined({SMP_LAUNCH}, words));
    CHECK(end.code == code);
    return end.err.substr(0, end.err.find('\n'));
  };
  const std::string all =
      "smp-launch: --nnodes needs --node-rank, --rendezvous and --key-file, as in --nnodes 4 "
      "--node-rank 2 --rendezvous 10.0.0.1:29400 --key-file key";
  CHECK(error_of({"--nnodes", "2", "--", "true"}, 2) == all);
  CHECK(error_of({"--nnodes", "2", "--node-rank", "1", "--", "true"}, 2) == all);
  CHECK(error_of({"--nnodes", "0", "--", "true"}, 2) ==
        "smp-launch: --nnodes '0': expected a number of hosts, as in --nnodes 4");
  CHECK(error_of({"--nnodes", "2", "--node-rank", "2", "--", "true"}, 2) ==
        "smp-launch: --node-rank '2': the 2 hosts have numbers from 0 to 1");
  CHECK(error_of({"-n", "2", "--node-rank", "1", "--", "true"}, 2) ==
        "smp-launch: --node-rank is for jobs whose hosts each start smp-launch: add --nnodes");
  const std::vector<std::string> second = {"--nnodes",     "2",   "--node-rank", "1",
                                           "--rendezvous", "h:1", "--key-file",  "k"};
  for (const std::vector<std::string>& hosts : std::vector<std::vector<std::string>>{
           {"--hosts", "a"}, {"--hosts", "local"}, {"--hosts", "auto"}, {"--hostfile", "h"}})
    CHECK(error_of(joined(joined(second, hosts), {"--", "true"}), 2) ==
          "smp-launch: --nnodes, --node-rank and --inside are for jobs whose hosts each start "
          "smp-launch: leave these three options out, or leave --hosts and --hostfile out");
  CHECK(error_of({"--nnodes", "2", "--via", "ssh", "--node-rank", "0", "--rendezvous", "h:1",
                  "--key-file", "k", "--", "true"},
                 2) ==
        "smp-launch: --via is for hosts that smp-launch reaches itself: leave the option out, "
        "because each host of this job starts smp-launch");
  CHECK(error_of({"--nnodes", "2", "--node-rank", "1", "--rendezvous", "h", "--key-file", "k", "--",
                  "true"},
                 2) ==
        "smp-launch: --rendezvous 'h': expected ADDRESS:PORT of host 0, as in "
        "10.0.0.1:29400");
  CHECK(error_of({"--nnodes", "2", "--node-rank", "1", "--rendezvous", rendezvous.place,
                  "--key-file", "/no/key", "--", "true"},
                 3) == "smp-launch: /no/key: No such file or directory");
}

TEST_CASE("one job over all that mpirun has started") {
  SUBCASE("on one host the first of them leads, the others have nothing to do") {
    const std::vector<std::string> words =
        joined({SMP_LAUNCH, "--inside", "mpirun", "--show-ranks", "all"},
               shell("echo $RANK/$WORLD_SIZE ${OMPI_COMM_WORLD_RANK-none}"));
    CHECK(sorted_lines(run_program(words, of_mpi(0, 3, 3)).out) ==
          std::vector<std::string>{"[0] 0/3 none", "[1] 1/3 none", "[2] 2/3 none"});
    const ProgramEnd other = run_program(words, of_mpi(2, 3, 3));
    CHECK(other.out + other.err == "");
    CHECK(other.code == 0);
  }
  SUBCASE("on two hosts the first of each meets the others") {
    const Rendezvous rendezvous;
    const std::vector<std::string> words =
        joined({SMP_LAUNCH, "--inside", "mpirun", "--rendezvous", rendezvous.place, "--key-file",
                rendezvous.key, "--show-ranks", "all"},
               shell("echo $RANK $LOCAL_RANK $GROUP_RANK/$GROUP_WORLD_SIZE"));
    Program second(words, of_mpi(2, 4, 2));
    const ProgramEnd end = run_program(words, of_mpi(0, 4, 2));
    CHECK(sorted_lines(end.out) ==
          std::vector<std::string>{"[0] 0 0 0/2", "[1] 1 1 0/2", "[2] 2 0 1/2", "[3] 3 1 1/2"});
    CHECK(second.wait().code == 0);
  }
  SUBCASE("what does not agree is refused") {
    const auto error_of = [](const std::vector<std::string>& options,
                             const std::vector<std::string>& environment) {
      const ProgramEnd end =
          run_program(joined(joined({SMP_LAUNCH}, options), {"--", "true"}), environment);
      CHECK(end.code == 2);
      return end.err.substr(0, end.err.find('\n'));
    };
    CHECK(error_of({"-n", "2"}, of_mpi(1, 4, 4)) ==
          "smp-launch: mpirun has started 4 smp-launch processes: give --inside mpirun to join "
          "them into one job");
    CHECK(error_of({"-n", "2", "--inside", "mpirun"}, of_mpi(0, 4, 4)) ==
          "smp-launch: -n gives 2 ranks, but mpirun has started 4: leave -n out");
    CHECK(error_of({"--inside", "mpirun"}, {}) ==
          "smp-launch: --inside mpirun: mpirun has not started this process: neither "
          "OMPI_COMM_WORLD_RANK nor PMI_RANK is set");
    CHECK(error_of({"--inside", "srun"}, {}) == "smp-launch: --inside 'srun': expected mpirun");
    CHECK(error_of({"--inside", "mpirun"}, of_mpi(0, 5, 2)) ==
          "smp-launch: --inside mpirun: 5 ranks in all, 2 on this host: start the same number of "
          "ranks on every host");
    CHECK(error_of({"--inside", "mpirun"}, of_mpi(0, 4, 2)) ==
          "smp-launch: --inside mpirun on several hosts needs --rendezvous and --key-file, as in "
          "--rendezvous 10.0.0.1:29400 --key-file key");
    CHECK(error_of({"--inside", "mpirun", "--nnodes", "2"}, of_mpi(0, 4, 2)) ==
          "smp-launch: --inside mpirun gets the hosts from mpirun: leave --nnodes and --node-rank "
          "out");
    CHECK(error_of({"--inside", "mpirun", "--hosts", "local"}, of_mpi(0, 4, 4)) ==
          "smp-launch: --nnodes, --node-rank and --inside are for jobs whose hosts each start "
          "smp-launch: leave these three options out, or leave --hosts and --hostfile out");
  }
}

TEST_CASE("a training job of SageMaker") {
  const Rendezvous rendezvous;
  const std::string root = rendezvous.folder / "ml";
  std::filesystem::create_directories(root + "/output");
  const auto on_host = [&](int host) {
    return std::vector<std::string>{"SM_HOSTS=[\"algo-1\",\"algo-2\"]",
                                    fmt::format("SM_CURRENT_HOST=algo-{}", host), "SM_NUM_GPUS=2",
                                    "SMP_SAGEMAKER_FOLDER=" + root};
  };
  const std::vector<std::string> words = joined(
      {SMP_LAUNCH, "--hosts", "sagemaker", "--rendezvous", rendezvous.place, "--key-file",
       rendezvous.key, "--show-ranks", "all"},
      shell("echo $RANK $GROUP_RANK; test $RANK = 3 && { echo oops >&2; exit 4; }; sleep 300"));
  Program second(words, on_host(2));
  const ProgramEnd end = run_program(words, on_host(1));
  CHECK(end.code == 4);
  CHECK(contains(end.err, "rank 3 on host algo-2 ("));
  const std::string failure = read_file(root + "/output/failure");
  CHECK(failure.starts_with("smp-launch: rank 3 on host algo-2 ("));
  CHECK(contains(failure, "    oops\n"));
  second.wait();
  SUBCASE("the SDK's distribution of mpi says ranks and variables") {
    std::filesystem::create_directories(root + "/input/config");
    std::ofstream(root + "/input/config/hyperparameters.json")
        << R"({"sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "2",)"
        << R"( "sagemaker_mpi_custom_mpi_options": "\"-verbose -x WHAT=this -x NOT_SET_HERE\""})";
    const std::vector<std::string> one = {"SM_HOSTS=[\"algo-1\"]", "SM_CURRENT_HOST=algo-1",
                                          "SM_NUM_GPUS=8", "SMP_SAGEMAKER_FOLDER=" + root};
    const auto start = [&](const std::vector<std::string>& options) {
      return run_program(joined(joined({SMP_LAUNCH, "--hosts", "sagemaker"}, options),
                                shell("echo $WORLD_SIZE $WHAT")),
                         one);
    };
    const ProgramEnd said = start({});
    CHECK(said.out == "[0] 2 this\n");
    CHECK(said.err ==
          "smp-launch: sagemaker_mpi_custom_mpi_options: -x NOT_SET_HERE: this variable is not "
          "set, so the ranks do not get it\nsmp-launch: sagemaker_mpi_custom_mpi_options: "
          "'-verbose' has no effect, because the ranks do not use MPI\n");
    CHECK(start({"--env", "WHAT=that"}).out == "[0] 2 that\n");  // what the user types counts
    CHECK(contains(
        start({"-n", "8"}).err,
        "smp-launch: -n gives 8 ranks, but SageMaker's mpi has started 2: leave -n out\n"));
    std::ofstream(root + "/input/config/hyperparameters.json")
        << R"({"sagemaker_mpi_enabled": "true", "sagemaker_mpi_custom_mpi_options": "-x RANK=1"})";
    CHECK(contains(start({}).err,
                   "smp-launch: sagemaker_mpi_custom_mpi_options: -x RANK: smp-launch sets this "
                   "variable itself: leave it out\n"));
  }
  SUBCASE("one host needs no rendezvous") {
    const ProgramEnd alone = run_program(
        joined({SMP_LAUNCH, "--hosts", "sagemaker", "-n", "3"}, shell("echo $WORLD_SIZE")),
        {"SM_HOSTS=[\"algo-1\"]", "SM_CURRENT_HOST=algo-1", "SM_NUM_GPUS=0"});
    CHECK(alone.out == "[0] 3\n");
    const ProgramEnd more = run_program(
        joined({SMP_LAUNCH, "--hosts", "sagemaker", "--key-file", rendezvous.key, "--nnodes", "2"},
               shell("true")),
        on_host(1));
    CHECK(contains(more.err, "smp-launch: --nnodes, --node-rank and --inside are for jobs whose "));
  }
  SUBCASE("hosts without GPUs say nothing about ranks") {
    const ProgramEnd refused = run_program(
        joined({SMP_LAUNCH, "--hosts", "sagemaker", "--key-file", rendezvous.key}, shell("true")),
        {"SM_HOSTS=[\"algo-1\",\"algo-2\"]", "SM_CURRENT_HOST=algo-1", "SM_NUM_GPUS=0"});
    CHECK(refused.code == 2);
    CHECK(contains(refused.err,
                   "smp-launch: SageMaker's hosts have no GPUs, so the number of ranks is unknown: "
                   "give -n, as in -n 4\n"));
  }
  SUBCASE("several need a key") {
    const ProgramEnd refused =
        run_program(joined({SMP_LAUNCH, "--hosts", "sagemaker"}, shell("true")), on_host(1));
    CHECK(refused.code == 2);
    CHECK(contains(refused.err,
                   "--hosts sagemaker on several hosts needs --key-file: a file with the same "
                   "secret on all hosts, in the image or in an input channel\n"));
    const ProgramEnd nowhere =
        run_program(joined({SMP_LAUNCH, "--hosts", "sagemaker"}, shell("true")),
                    {"SMP_SAGEMAKER_FOLDER=/nowhere"});
    CHECK(contains(nowhere.err, "--hosts sagemaker: this is not a training job of SageMaker"));
  }
}

namespace {

// smp-launch with no other variables than these.
std::vector<std::string> alone(const std::vector<std::string>& variables) {
  return joined(
      joined({"/usr/bin/env", "-i", "PATH=/usr/bin:/bin", "SMP_SAGEMAKER_FOLDER=/nowhere"},
             variables),
      {SMP_LAUNCH});
}

std::vector<std::string> of_trainjob(int pods, int pod) {
  return {fmt::format("PET_NNODES={}", pods), fmt::format("PET_NODE_RANK={}", pod),
          "PET_NPROC_PER_NODE=2", "KUBERNETES_SERVICE_HOST=10.0.0.1"};
}

}  // namespace

TEST_CASE("the pods of a job on Kubernetes") {
  const Rendezvous rendezvous;
  const auto start = [&](const std::vector<std::string>& variables,
                         const std::vector<std::string>& options) {
    return joined(joined(alone(variables), options),
                  shell("echo $RANK/$WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE"));
  };
  const std::vector<std::string> meet = {"--hosts",        "k8s",        "--rendezvous",
                                         rendezvous.place, "--key-file", rendezvous.key,
                                         "--show-ranks",   "all"};
  const std::vector<std::string> lines = {"[0] 0/4 0/2", "[1] 1/4 0/2", "[2] 2/4 1/2",
                                          "[3] 3/4 1/2"};
  SUBCASE("of a TrainJob") {
    Program second(start(of_trainjob(2, 1), meet));
    const ProgramEnd end = run_program(start(of_trainjob(2, 0), meet));
    CHECK(sorted_lines(end.out) == lines);
    CHECK(second.wait().code == 0);
  }
  SUBCASE("of an indexed job, which does not say how many") {
    const std::vector<std::string> more = {"--nnodes", "2", "-n", "4"};
    Program second(start({"JOB_COMPLETION_INDEX=1"}, joined(meet, more)));
    CHECK(sorted_lines(run_program(start({"JOB_COMPLETION_INDEX=0"}, joined(meet, more))).out) ==
          lines);
    CHECK(second.wait().code == 0);
  }
  SUBCASE("one pod meets nobody") {
    CHECK(run_program(start(of_trainjob(1, 0), {"--hosts", "k8s"})).out == "[0] 0/2 0/1\n");
  }
  SUBCASE("what is missing or does not agree is refused") {
    const auto error_of = [&](const std::vector<std::string>& variables,
                              const std::vector<std::string>& options) {
      const ProgramEnd end = run_program(start(variables, joined({"--hosts", "k8s"}, options)));
      CHECK(end.code == 2);
      return end.err.substr(0, end.err.find('\n'));
    };
    CHECK(contains(error_of({}, {}), "smp-launch: --hosts k8s: this is not a pod of a TrainJob"));
    CHECK(error_of({"JOB_COMPLETION_INDEX=1"}, {}) ==
          "smp-launch: --hosts k8s: the environment of a pod of an indexed job does not have the "
          "number of pods: give --nnodes");
    CHECK(error_of({"JOB_COMPLETION_INDEX=2"}, {"--nnodes", "2"}) ==
          "smp-launch: --nnodes gives 2 pods, but this pod has number 2 (from 0): give the number "
          "of all pods");
    CHECK(error_of(of_trainjob(2, 0), {"--nnodes", "3"}) ==
          "smp-launch: --nnodes gives 3 pods, but this pod's job has 2: leave --nnodes out");
    CHECK(error_of(of_trainjob(2, 0), {"--node-rank", "0"}) ==
          "smp-launch: --hosts k8s gets the number of this pod from the cluster: leave --node-rank "
          "out");
    CHECK(error_of(of_trainjob(2, 0), {}) ==
          "smp-launch: --hosts k8s: the address of the first pod does not follow from the name of "
          "this pod: give the job a subdomain (a headless service), or give --rendezvous, as in "
          "--rendezvous gpt-host-0-0.gpt:29400");
    CHECK(error_of(joined(of_trainjob(2, 0), {"PET_MASTER_ADDR=t-0.t"}), {}) ==
          "smp-launch: --hosts k8s needs --key-file: a secret that all pods mount, as in "
          "--key-file /etc/smp-launch/key");
    CHECK(error_of({"LWS_GROUP_SIZE=2", "LWS_WORKER_INDEX=0", "LWS_LEADER_ADDRESS=g-0.g"},
                   {"--key-file", rendezvous.key}) ==
          "smp-launch: --hosts k8s: the number of ranks is missing: give the total over all pods, "
          "as in -n 32");
    CHECK(error_of(of_trainjob(1, 0), {"-n", "3"}) ==
          "smp-launch: -n gives 3 ranks, but this pod's job has started 2: leave -n out");
    CHECK(error_of({"PET_NNODES=131073", "PET_NODE_RANK=0"}, {}) ==
          "smp-launch: --hosts k8s: PET_NNODES='131073': expected at most 131072");
    CHECK(error_of({"HYDRA_HOST_FILE=/etc/mpi/hostfile"}, {"--hostfile", "h"}) ==
          "smp-launch: --hosts and --hostfile exclude each other: leave one of the two out");
  }
}

TEST_CASE("the hosts of the scheduler that has started this") {
  const ScratchFolder folder;
  const std::string nodes = folder / "nodes";
  std::ofstream(nodes) << "n1\nn2\nn1\nn2\n";
  const auto start = [&](const std::vector<std::string>& variables,
                         const std::vector<std::string>& options) {
    return run_program(joined(joined(alone(variables), options),
                              shell("echo $RANK $GROUP_RANK/$GROUP_WORLD_SIZE")));
  };
  const auto run = [&](const std::vector<std::string>& variables, const std::string& hosts) {
    const ProgramEnd end =
        start(variables, {"--hosts", hosts, "--via", "local", "--show-ranks", "all"});
    std::string text = end.err;
    for (const std::string& line : sorted_lines(end.out)) text += line + "; ";
    return text;
  };
  const std::string ranks = "[0] 0 0/2; [1] 1 0/2; [2] 2 1/2; [3] 3 1/2; ";
  CHECK(run({"LSB_MCPU_HOSTS=a 2 b 2"}, "lsf") == ranks);
  CHECK(run({"PBS_NODEFILE=" + nodes}, "pbs") == ranks);
  CHECK(run({"LSB_MCPU_HOSTS=a 2 b 2"}, "auto") ==
        "smp-launch: --hosts auto: the hosts of LSF's job (LSB_MCPU_HOSTS)\n" + ranks);
  CHECK(run({"PBS_NODEFILE=" + nodes}, "auto") ==
        "smp-launch: --hosts auto: the hosts of PBS's job (PBS_NODEFILE)\n" + ranks);
  CHECK(run({"SLURM_JOB_NODELIST=n[1-2]", "SLURM_TASKS_PER_NODE=2(x2)"}, "auto") ==
        "smp-launch: --hosts auto: the hosts of Slurm's allocation (SLURM_JOB_NODELIST)\n" + ranks);
  const ProgramEnd here = start({}, {"--hosts", "auto", "-n", "1"});
  CHECK(here.err ==
        "smp-launch: --hosts auto: this host alone, because no scheduler has started smp-launch\n");
  CHECK(here.out == "[0] 0 0/1\n");
  CHECK(start({"LSB_MCPU_HOSTS=a 2"}, {"--hosts", "local", "-n", "1"}).out == "[0] 0 0/1\n");
  for (const char* word : {"local", "auto"}) {
    const ProgramEnd two = start({}, {"--hosts", word, "--hostfile", nodes});
    CHECK(two.code == 2);
    CHECK(contains(two.err, "smp-launch: --hosts and --hostfile exclude each other"));
  }
  const ProgramEnd away = start({"LSB_MCPU_HOSTS=a 1"}, {"--hosts", "auto", "--via", "exec:false"});
  CHECK(
      away.err.starts_with("smp-launch: --hosts auto: the hosts of LSF's job (LSB_MCPU_HOSTS)\n"));
  CHECK(contains(away.err, "host a"));
  // A pod's variables count on Kubernetes alone.
  CHECK(contains(start({"PET_NNODES=2", "PET_NODE_RANK=0"}, {"--hosts", "auto", "-n", "1"}).err,
                 "this host alone"));
  CHECK(start(of_trainjob(1, 0), {"--hosts", "auto"}).err ==
        "smp-launch: --hosts auto: the hosts of a TrainJob (PET_NNODES)\n");
  const ProgramEnd both =
      start({"LSB_MCPU_HOSTS=a 2", "PBS_NODEFILE=" + nodes}, {"--hosts", "auto"});
  CHECK(both.code == 2);
  CHECK(contains(both.err,
                 "smp-launch: --hosts auto: both LSB_MCPU_HOSTS and PBS_NODEFILE are set: choose "
                 "one, as in --hosts lsf\n"));
  const ProgramEnd dry = start({"LSB_MCPU_HOSTS=a 2 b 2"}, {"--hosts", "auto", "--dry-run"});
  CHECK(contains(dry.err, "ok  hosts        --hosts auto: the hosts of LSF's job "));
}
