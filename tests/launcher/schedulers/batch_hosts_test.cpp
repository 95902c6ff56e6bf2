#include "smp/launcher/schedulers/batch_hosts.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <fstream>

#include "scratch_folder.h"
#include "smp/launcher/schedulers/pod_place.h"
#include "smp/launcher/schedulers/sagemaker_mpi.h"
#include "smp/plan/base/errors.h"

using namespace smp;
using namespace smp::hosts;
using namespace smp::schedulers;

namespace {

std::string text_of(const std::vector<HostSpec>& hosts) {
  std::string text;
  for (const HostSpec& host : hosts)
    text += fmt::format("{}{}{}", text.empty() ? "" : " ", host.name,
                        host.slots == 0 ? "" : fmt::format(":{}", host.slots));
  return text;
}

template <typename Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

struct NodeFile {
  ScratchFolder folder;
  std::string path = folder / "nodes";
  explicit NodeFile(const std::string& text) { std::ofstream(path) << text; }
};

std::string text_of(const PodPlace& place) {
  return fmt::format("{}: {} of {}, {} ranks, {}:{}", place.source, place.node_rank, place.pods,
                     place.ranks, place.leader, place.port);
}

std::string pod(const std::vector<std::string>& environment, const std::string& name = "p") {
  return text_of(pod_place(environment, name, "/no/hostfile"));
}

std::string pod_error(const std::vector<std::string>& environment) {
  return error_of([&] { pod(environment); });
}

}  // namespace

TEST_CASE("the hosts of a job of LSF") {
  const NodeFile file("a\na\nb\na\n");
  const std::string hostfile = "LSB_DJOB_HOSTFILE=" + file.path;
  CHECK(text_of(hosts_of_lsf({"LSB_MCPU_HOSTS=a 4 b 2"})) == "a:4 b:2");
  CHECK(text_of(hosts_of_lsf({"LSB_MCPU_HOSTS=a 1 b 2 a 3"})) == "a:4 b:2");
  CHECK(text_of(hosts_of_lsf({"LSB_MCPU_HOSTS=a 1 b 1 "})) == "a b");  // left to -n and the plan
  CHECK(text_of(hosts_of_lsf({hostfile})) == "a:3 b:1");
  CHECK(text_of(hosts_of_lsf({hostfile, "LSB_MCPU_HOSTS=a 3 b 1"})) == "a:3 b:1");
  const auto error = [](const std::vector<std::string>& environment) {
    return error_of([&] { hosts_of_lsf(environment); });
  };
  CHECK(error({"LSB_JOBID=1"}) ==
        "--hosts lsf: this is not a job of LSF (neither LSB_MCPU_HOSTS nor LSB_DJOB_HOSTFILE is "
        "set): run smp-launch in a script of bsub");
  CHECK(error({hostfile, "LSB_MCPU_HOSTS=a 4"}) ==
        fmt::format("LSB_MCPU_HOSTS='a 4', but LSB_DJOB_HOSTFILE='{}' has 'a 3 b 1': unset the "
                    "variable that is not of this job",
                    file.path));
  for (const char* slots : {"", " 0", " x", " 4x", " 99999"})
    CHECK(error({fmt::format("LSB_MCPU_HOSTS=a 1 b{}", slots)}) ==
          fmt::format("LSB_MCPU_HOSTS='a 1 b{}': expected a list such as 'a 4 b 4': host 'b' has "
                      "no number of slots",
                      slots));
  CHECK(error({"LSB_MCPU_HOSTS="}) == "LSB_MCPU_HOSTS: names no host");
  CHECK(error({"LSB_MCPU_HOSTS=-o 1"}) == "LSB_MCPU_HOSTS: '-o' is not a host name");
  CHECK(error({"LSB_MCPU_HOSTS=a 4096 a 1"}) ==
        "LSB_MCPU_HOSTS: host 'a' has more than 4096 slots");
}

TEST_CASE("the hosts of a job of PBS") {
  const NodeFile file("n2.cluster\r\nn1.cluster\n\nn2.cluster\n");
  const std::string variable = "PBS_NODEFILE=" + file.path;
  CHECK(text_of(hosts_of_pbs({variable})) == "n2.cluster:2 n1.cluster:1");
  CHECK(text_of(hosts_of_pbs({variable, "PBS_NP=3"})) == "n2.cluster:2 n1.cluster:1");
  const NodeFile single("n1\nn2\n");
  CHECK(text_of(hosts_of_pbs({"PBS_NODEFILE=" + single.path})) == "n1 n2");
  const auto error = [](const std::vector<std::string>& environment) {
    return error_of([&] { hosts_of_pbs(environment); });
  };
  CHECK(error({}) ==
        "--hosts pbs: this is not a job of PBS (PBS_NODEFILE is not set): run smp-launch in a "
        "script of qsub");
  CHECK(
      error({variable, "PBS_NP=8"}) ==
      fmt::format(
          "PBS_NP=8, but PBS_NODEFILE='{}' has 3 slots: unset the variable that is not of this job",
          file.path));
  const NodeFile empty("\n"), words("n1 slots=4\n");
  CHECK(error({"PBS_NODEFILE=" + empty.path}) ==
        fmt::format("PBS_NODEFILE='{}': names no host", empty.path));
  CHECK(error({"PBS_NODEFILE=" + words.path}) ==
        fmt::format("PBS_NODEFILE='{}': 'n1 slots=4' is not a host name", words.path));
  CHECK(error({"PBS_NODEFILE=/no/file"}).find("/no/file") != std::string::npos);
  std::string many;
  for (int i = 0; i <= kMostHosts; ++i) many += fmt::format("n{}\n", i);
  CHECK(error_of([&] { parse_slot_lines("f", many); }) ==
        fmt::format("f: more than {} hosts", kMostHosts));
}

TEST_CASE("a pod's place among those of its job") {
  const std::vector<std::string> trainjob = {"PET_NNODES=4", "PET_NODE_RANK=2",
                                             "PET_NPROC_PER_NODE=8", "PET_MASTER_ADDR=t-0.t",
                                             "PET_MASTER_PORT=29500"};
  CHECK(pod(trainjob) == "PET_NNODES: 2 of 4, 8 ranks, t-0.t:29500");
  CHECK(pod({"PET_NNODES=4", "PET_NODE_RANK=2", "PET_NPROC_PER_NODE=auto"}) ==
        "PET_NNODES: 2 of 4, 0 ranks, :0");
  CHECK(pod({"LWS_GROUP_SIZE=3", "LWS_WORKER_INDEX=0", "LWS_LEADER_ADDRESS=g-0.g.default"}) ==
        "LWS_GROUP_SIZE: 0 of 3, 0 ranks, g-0.g.default:0");
  CHECK(pod({"JOB_COMPLETION_INDEX=3"}, "gpt-host-0-3.gpt.default.svc") ==
        "JOB_COMPLETION_INDEX: 3 of 0, 0 ranks, gpt-host-0-0.gpt.default.svc:0");
  CHECK(pod({"JOB_COMPLETION_INDEX=3"}, "gpt-3") ==
        "JOB_COMPLETION_INDEX: 3 of 0, 0 ranks, :0");  // no subdomain
  CHECK(pod({"JOB_COMPLETION_INDEX=3"}, "gpt-13.gpt") ==
        "JOB_COMPLETION_INDEX: 3 of 0, 0 ranks, :0");
  for (const char* name :
       {"OMPI_MCA_orte_default_hostfile", "I_MPI_HYDRA_HOST_FILE", "HYDRA_HOST_FILE"})
    CHECK(pod_place({fmt::format("{}=/etc/mpi/hostfile", name)}, "p", "/no").host_file ==
          "/etc/mpi/hostfile");
  const NodeFile file("w-0 slots=2\n");
  CHECK(pod_place({}, "p", file.path).host_file == file.path);

  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), trainjob.begin(), trainjob.end());
    return more;
  };
  CHECK(pod(with({"JOB_COMPLETION_INDEX=2"})) == "PET_NNODES: 2 of 4, 8 ranks, t-0.t:29500");
  CHECK(pod_error(with({"JOB_COMPLETION_INDEX=1"})) ==
        "PET_NNODES gives this pod's number as 2, but JOB_COMPLETION_INDEX gives 1: unset the "
        "variable that is not of this job");
  CHECK(pod_error(with({"LWS_GROUP_SIZE=3", "LWS_WORKER_INDEX=2"})) ==
        "PET_NNODES gives the number of pods as 4, but LWS_GROUP_SIZE gives 3: unset the variable "
        "that is not of this job");
  CHECK(pod_error({"LWS_GROUP_SIZE=3", "LWS_WORKER_INDEX=3"}) ==
        "LWS_GROUP_SIZE is 3, but this pod has number 3, from 0");
  CHECK(pod_error({"PET_NNODES=2:4"}) == "PET_NNODES='2:4': expected a whole number");
  const std::string most = fmt::format(": expected at most {}", kMostHosts);
  CHECK(pod_error({"PET_NNODES=131073"}) == "PET_NNODES='131073'" + most);
  CHECK(pod_error({"LWS_GROUP_SIZE=2147483647"}) == "LWS_GROUP_SIZE='2147483647'" + most);
  CHECK(pod_error({"PET_NNODES=2", "PET_NODE_RANK=0", "PET_NPROC_PER_NODE=4097"}) ==
        "PET_NPROC_PER_NODE='4097': expected at most 4096");
  CHECK(pod_error({"PET_NNODES=2", "PET_NODE_RANK=0", "PET_MASTER_PORT=65536"}) ==
        "PET_MASTER_PORT='65536': expected at most 65535");
  CHECK(pod_error({"PET_NNODES=2"}) ==
        "PET_NODE_RANK is not set, but other variables of the same launcher are");
  CHECK(pod_error({}) ==
        "this is not a pod of a TrainJob (PET_NNODES), LeaderWorkerSet (LWS_GROUP_SIZE), JobSet or "
        "indexed job (JOB_COMPLETION_INDEX) or MPIJob's launcher ('/no/hostfile'): neither the "
        "variables are set nor the file exists");
  CHECK(!own_full_name().empty());
}

TEST_CASE("what SageMaker's SDK says of mpirun is taken in our own terms, or refused") {
  const auto read = [](const std::string& processes, const std::string& options) {
    return parse_sagemaker_mpi("h.json", fmt::format(R"({{"sagemaker_mpi_enabled": "true",
                                   "sagemaker_mpi_num_of_processes_per_host": {},
                                   "sagemaker_mpi_custom_mpi_options": {}}})",
                                                     processes, options));
  };
  const SageMakerMpi mpi = read(
      R"("8")",
      R"("\"-verbose --mca btl_vader_single_copy_mechanism none -x A=b -x C -tag-output=1 --NCCL_DEBUG=INFO --NCCL_DEBUG WARN\"")");
  CHECK(mpi.processes_per_host == 8);
  CHECK(mpi.variables ==
        std::vector<std::string>{"A=b", "C", "NCCL_DEBUG=INFO", "NCCL_DEBUG=WARN"});
  CHECK(mpi.dropped == std::vector<std::string>{"-verbose",
                                                "--mca btl_vader_single_copy_mechanism none",
                                                "-tag-output=1"});
  CHECK(read("4", R"("-x A=1")").variables == std::vector<std::string>{"A=1"});  // as older SDKs
  CHECK(read("null", "null").processes_per_host == 0);
  for (const char* text : {"{}", R"({"sagemaker_mpi_enabled": "false", "epochs": "3"})",
                           R"({"sagemaker_mpi_enabled": false,
                               "sagemaker_mpi_num_of_processes_per_host": "x"})"}) {
    const SageMakerMpi none = parse_sagemaker_mpi("h.json", text);
    CHECK(none.processes_per_host == 0);
    CHECK(none.variables.empty());
  }
  CHECK(sagemaker_mpi("/no/folder").processes_per_host == 0);
  const auto error = [&](const std::string& processes, const std::string& options) {
    return error_of([&] { read(processes, options); });
  };
  const std::string option = "h.json: sagemaker_mpi_custom_mpi_options: ";
  CHECK(error("1", R"("--bind-to core")") ==
        option + "'--bind-to' is for mpirun, which smp-launch does not use: use --bind");
  CHECK(error("1", R"("--bind-to=core")") ==
        option + "'--bind-to=core' is for mpirun, which smp-launch does not use: use --bind");
  CHECK(error("1", R"("-timeout=60")") ==
        option + "'-timeout=60' is for mpirun, which smp-launch does not use: use --timeout");
  for (const char* word : {"-rf", "--NCCL_DEBUG_SUBSYS=ALL", "-x=A", "--mca=a"})
    CHECK(error("1", fmt::format(R"("{} ranks")", word)) ==
          fmt::format("{}'{}' is for mpirun, which smp-launch does not use: leave this option out",
                      option, word));
  CHECK(error("1", R"("core")") == option + "'core' is not an option of mpirun");
  CHECK(error("1", R"("-mca a")") == option + "a value is missing after '-mca'");
  CHECK(error("1", "7") == option + "expected a string");
  CHECK(error(R"("x")", "null") ==
        "h.json: sagemaker_mpi_num_of_processes_per_host: 'x' is not a whole number from 1 to "
        "4096");
  CHECK(error_of([] { parse_sagemaker_mpi("h.json", "["); }) == "h.json: expected a JSON object");
  CHECK(error_of([] { parse_sagemaker_mpi("h.json", R"({"sagemaker_mpi_enabled": "yes"})"); }) ==
        "h.json: sagemaker_mpi_enabled: 'yes' is neither true nor false");
}
