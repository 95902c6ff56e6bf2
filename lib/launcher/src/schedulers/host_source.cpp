#include <fmt/format.h>

#include <array>
#include <filesystem>

#include "kubernetes.h"
#include "smp/launcher/environment/forwarding.h"
#include "smp/launcher/environment/rank_environment.h"
#include "smp/launcher/environment/variables.h"
#include "smp/launcher/request/usage_error.h"
#include "smp/launcher/schedulers/batch_hosts.h"
#include "smp/launcher/schedulers/pod_place.h"
#include "smp/launcher/schedulers/sagemaker_job.h"
#include "smp/launcher/schedulers/sagemaker_mpi.h"
#include "smp/launcher/schedulers/scheduler.h"
#include "smp/launcher/schedulers/slurm.h"
#include "smp/plan/base/errors.h"

namespace smp::schedulers {
namespace {

constexpr int kSageMakerPort = 7777;             // the one that its own launchers take
constexpr std::chrono::minutes kForAllPods{10};  // images are fetched meanwhile

// A variable that a scheduler sets, the word of --hosts for it, and its hosts in words.
struct Mark {
  const char *variable, *word, *hosts;
};
constexpr std::array<Mark, 8> kMarks = {{
    {"SLURM_JOB_NODELIST", request::kSlurm, "Slurm's allocation"},
    {"LSB_MCPU_HOSTS", request::kLsf, "LSF's job"},
    {"LSB_DJOB_HOSTFILE", request::kLsf, "LSF's job"},
    {"PBS_NODEFILE", request::kPbs, "PBS's job"},
    {"SM_HOSTS", request::kSageMaker, "SageMaker's training job"},
    {"PET_NNODES", request::kKubernetes, "a TrainJob"},
    {"LWS_GROUP_SIZE", request::kKubernetes, "a LeaderWorkerSet"},
    {"JOB_COMPLETION_INDEX", request::kKubernetes, "a JobSet or an indexed job"},
}};

Mark mark_here(const std::vector<std::string>& environment) {
  Mark found{nullptr, request::kLocal, nullptr};
  for (const Mark& mark : kMarks) {
    const bool of_pod = mark.word == std::string_view(request::kKubernetes);
    if (!environment::value_in(environment, mark.variable)) continue;
    if (of_pod && !environment::value_in(environment, "KUBERNETES_SERVICE_HOST")) continue;
    if (found.variable != nullptr && found.word != std::string_view(mark.word))
      throw request::UsageError(
          fmt::format("--hosts auto: both {} and {} are set: choose one, as in --hosts {}",
                      found.variable, mark.variable, found.word));
    if (found.variable == nullptr) found = mark;
  }
  return found;
}

void find_hosts(request::HostRequest& request) {
  const std::vector<std::string> environment = environment::own_environment();
  const Mark mark = mark_here(environment);
  request.hosts = mark.word;
  std::string found =
      mark.variable != nullptr
          ? fmt::format("--hosts auto: the hosts of {} ({})", mark.hosts, mark.variable)
          : "--hosts auto: this host alone, because no scheduler has started smp-launch";
  std::error_code error;
  const std::string sagemaker = sagemaker_folder(environment) + "/input/config/resourceconfig.json";
  if (mark.variable == nullptr && std::filesystem::exists(sagemaker, error)) {
    request.hosts = request::kSageMaker;
    found = fmt::format("--hosts auto: the hosts of SageMaker's training job ({})", sagemaker);
  } else if (mark.variable == nullptr &&
             environment::value_in(environment, "KUBERNETES_SERVICE_HOST") &&
             std::filesystem::exists(kMpiHostFile, error)) {
    request.hosts = request::kKubernetes;
    found = fmt::format("--hosts auto: the workers of an MPIJob ({})", kMpiHostFile);
  }
  request.notes.push_back(std::move(found));
}

// Translates distribution={"mpi": ...} of SageMaker's SDK into options of smp-launch.
void read_mpi_of_sagemaker(request::HostRequest& request, request::RendezvousRequest& rendezvous,
                           int hosts) {
  const schedulers::SageMakerMpi mpi =
      schedulers::sagemaker_mpi(sagemaker_folder(environment::own_environment()));
  if (mpi.processes_per_host != 0) {
    rendezvous.slots = mpi.processes_per_host;
    rendezvous.ranks = mpi.processes_per_host * hosts;
    rendezvous.starter = "SageMaker's mpi";
  }
  std::vector<std::string> variables;
  for (const std::string& variable : mpi.variables) {
    environment::check_variable(request::kMpiVariable, variable);
    if (variable.find('=') == variable.npos &&
        !environment::value_in(environment::own_environment(), variable)) {
      request.notes.push_back(
          fmt::format("{} {}: this variable is not set, so the ranks do not get it",
                      request::kMpiVariable, variable));
      continue;
    }
    request.mpi_variables.insert(variable.substr(0, variable.find('=')));
    variables.push_back(variable);
  }
  // The last value counts, so the command line goes behind.
  request.forward.named.insert(request.forward.named.begin(), variables.begin(), variables.end());
  if (!mpi.dropped.empty())
    request.notes.push_back(fmt::format(
        "sagemaker_mpi_custom_mpi_options: '{}' has no effect, because the ranks do not use MPI",
        fmt::join(mpi.dropped, "', '")));
}

void read_sagemaker(request::HostRequest& request) {
  request::RendezvousRequest& rendezvous = request.rendezvous;
  SageMakerJob job;
  try {
    job = sagemaker_job(environment::own_environment());
    rendezvous.ranks = job.gpus * static_cast<int>(job.hosts.size());
    read_mpi_of_sagemaker(request, rendezvous, static_cast<int>(job.hosts.size()));
  } catch (const ConfigError& error) {
    throw request::UsageError(fmt::format("--hosts sagemaker: {}", error.what()));
  }
  if (job.hosts.size() == 1) {  // the same command as on several, where nobody is to be met
    rendezvous.endpoint.clear();
    rendezvous.key_file.clear();
    return;
  }
  rendezvous.nnodes = static_cast<int>(job.hosts.size());
  rendezvous.node_rank = job.current;
  if (rendezvous.endpoint.empty())
    rendezvous.endpoint = fmt::format("{}:{}", job.hosts.front(), kSageMakerPort);
  if (rendezvous.key_file.empty())
    throw request::UsageError(
        "--hosts sagemaker on several hosts needs --key-file: a file with the same secret on all "
        "hosts, in the image or in an input channel");
  if (request.interface.empty()) request.interface = job.interface;
  rendezvous.names = job.hosts;
}

// Each pod becomes a node of a rendezvous.
void read_pod(request::HostRequest& request) {
  schedulers::PodPlace place;
  try {
    place = schedulers::pod_place(environment::own_environment(), schedulers::own_full_name(),
                                  kMpiHostFile);
  } catch (const ConfigError& error) {
    throw request::UsageError(fmt::format("--hosts k8s: {}", error.what()));
  }
  if (!place.host_file.empty()) {
    request.hostfile = place.host_file;
    return;
  }
  request::RendezvousRequest& rendezvous = request.rendezvous;
  rendezvous.starter = "this pod's job";
  rendezvous.pods = true;
  rendezvous.nnodes = place.pods;
  rendezvous.node_rank = place.node_rank;
  rendezvous.slots = place.ranks;
  if (rendezvous.endpoint.empty() && !place.leader.empty())
    rendezvous.endpoint =
        fmt::format("{}:{}", place.leader, place.port == 0 ? kPodPort : place.port);
  request.connect_timeout = kForAllPods;
}

}  // namespace

void resolve_hosts(request::HostRequest& request) {
  if (!request.hosts.empty() && !request.hostfile.empty())
    throw request::UsageError(
        "--hosts and --hostfile exclude each other: leave one of the two out");
  if (request.hosts == request::kAuto) find_hosts(request);
  if (request.hosts == request::kLocal) {
    request.hosts.clear();
  } else if (request.hosts == request::kSageMaker) {
    request.sagemaker = true;
    request.hosts.clear();
    read_sagemaker(request);
  } else if (request.hosts == request::kKubernetes) {
    request.hosts.clear();
    read_pod(request);
  }
}

std::optional<std::vector<hosts::HostSpec>> allocated_hosts(const request::HostRequest& request) {
  const std::vector<std::string> environment = environment::own_environment();
  if (request.hosts == request::kSlurm) return hosts_of_slurm(slurm_allocation(environment));
  if (request.hosts == request::kLsf) return hosts_of_lsf(environment);
  if (request.hosts == request::kPbs) return hosts_of_pbs(environment);
  return std::nullopt;
}

}  // namespace smp::schedulers
