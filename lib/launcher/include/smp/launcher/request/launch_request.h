#pragma once

#include <signal.h>

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "smp/launcher/environment/forwarding.h"
#include "smp/launcher/job/job.h"
#include "smp/launcher/local/binding.h"
#include "smp/launcher/process/log_file.h"
#include "smp/launcher/reach/agent_transport.h"
#include "smp/launcher/supervision/restart.h"

// Everything that the user says about a launch. smp-launch fills a LaunchRequest from its command
// line; the library reads it and copies no part of it. Plain data.
namespace smp::request {

// Values of --hosts: a scheduler whose allocation names the hosts, this host, or whichever of them
// is found.
constexpr const char* kSlurm = "slurm";
constexpr const char* kLsf = "lsf";
constexpr const char* kPbs = "pbs";
constexpr const char* kSageMaker = "sagemaker";
constexpr const char* kKubernetes = "k8s";
constexpr const char* kLocal = "local";  // as --via too
constexpr const char* kAuto = "auto";
constexpr const char* kMpirun = "mpirun";  // as --via
constexpr const char* kSrun = "srun";
constexpr const char* kOff = "off";  // as --topology

constexpr const char* kMpiVariable = "sagemaker_mpi_custom_mpi_options: -x";

// --resume's word for jobs that others start again: go on where there is a checkpoint.
inline constexpr const char* kResumeIfAny = "if-any";

constexpr int kMostRanks = 65536;  // of a job

// What a dry run prints: text for people, JSON for programs, or the job as another launcher takes
// it.
enum class DryRun { kNo, kText, kRanks, kJson, kSh, kSbatch, kJobset, kMpijob, kTrainjob, kLws };

// Whether the form is a manifest for Kubernetes. The files that it names are those of a container's
// image.
bool is_manifest(DryRun form);

// The GPUs of a host that a rank sees: none, all that the host's ranks use, or its own one.
enum class VisibleGpus { kNone, kAllLocal, kOne };

// An option as it was typed.
struct SaidOption {
  std::string name;  // "--run-dir"
  std::vector<std::string> values;
  bool is_flag = false;  // its value stands behind '='
};

// smp-launch is started on each of `nnodes` hosts: by hand, by a scheduler or by mpirun. The host
// of order 0 leads.
struct RendezvousRequest {
  int nnodes = 0;      // 0: not so
  int node_rank = -1;  // of this host among them; 0 leads; -1: not said
  int slots = 0;       // ranks of this host; 0: not said
  std::string endpoint, key_file;
  std::vector<std::string> names;  // of the hosts; empty: they have none yet
  int ranks = 0;                   // that the outer launcher has started; 0: not said
  std::string starter = "mpirun";  // that launcher, in words for the user
  bool pods = false;               // the hosts are pods of Kubernetes

  bool wanted() const { return nnodes > 0; }
};

// The hosts of a job. Without any, the ranks run on this one.
struct HostRequest {
  std::string hosts, hostfile, exclude;
  std::vector<std::string> notes;  // for the user, such as what --hosts auto has found
  reach::AgentTransportOptions transport;
  std::string mpirun_arguments;
  std::vector<std::string> topology;  // files of it, or kSlurm, or kOff; none: Slurm's own
  std::string interface;              // whose address the ranks meet at
  std::chrono::milliseconds heartbeat_timeout{3000};
  std::chrono::milliseconds connect_timeout{30'000};
  std::optional<int> fan_out;  // agents that one of them reaches; not said: 32 above 64
  environment::ForwardRules forward;
  std::set<std::string> mpi_variables;  // names that kMpiVariable has added to forward.named
  VisibleGpus visible_gpus = VisibleGpus::kAllLocal;
  bool sagemaker_variables = false;  // ranks get SM_HOSTS and the like
  std::vector<std::string> push;     // files and folders that the hosts get

  RendezvousRequest rendezvous;
  bool sagemaker = false;  // this is a training job of SageMaker

  // Whether one command starts the agents of all hosts: mpirun, or an srun of smp-launch's own. A
  // step inside a step would lack the allocation's variables.
  bool starts_all() const { return transport.via == kSrun || transport.via == kMpirun; }
  // The option that named a variable of forward.named, in the user's words.
  const char* option_of(const std::string& variable) const {
    return mpi_variables.count(variable) != 0 ? kMpiVariable : "--env";
  }
  bool several() const { return !hosts.empty() || !hostfile.empty() || rendezvous.wanted(); }
};

// The ranks' output.
struct OutputRequest {
  std::string shown_ranks = "0";
  std::string prefix = "[{rank}] ";
  bool fold = false;
  bool rank_logs = true;
  bool host_logs = false;
  std::string log_name = "rank-{rank}.{stream}";
  process::LogLimit log_limit;

  bool asks_for_logs() const { return host_logs || log_limit.bytes > 0; }
};

// Failures, restarts, preemption and measurements.
struct WatchRequest {
  job::WatchRules rules;
  supervision::RestartRules restarts;
  int spares = 0;
  std::string metrics_file;                                 // of Prometheus; empty: none
  bool samples_usage = true;                                // of the ranks, into the run folder
  std::optional<std::chrono::milliseconds> usage_interval;  // none: by the number of ranks
};

// Checked as far as that is possible without looking at any file.
struct LaunchRequest {
  std::string plan;                  // path; empty = a program
  std::vector<std::string> program;  // everything behind "--"; empty = a plan
  int ranks = 0;                     // of a program; 0 = as many as the hosts have slots
  std::string run_dir;               // empty = the default for a plan, none for a program
  std::string resume;                // "latest" or a step; empty = start anew
  OutputRequest output;
  std::string input_ranks = "none";  // that are given standard input
  std::optional<std::chrono::milliseconds> timeout;
  std::optional<std::chrono::milliseconds> comm_timeout;
  std::string report_json;
  std::string status_of;  // a run folder: tell how it stands, launch nothing
  WatchRequest watch;
  HostRequest hosts;
  local::Binding binding = local::Binding::kNone;
  bool report_bindings = false;
  bool tensor_across_hosts = false;  // allowed
  DryRun dry_run = DryRun::kNo;
  std::vector<std::string> skipped;  // checks that a dry run does not ask for
  bool check = false;                // the hosts; start nothing
  std::string job_name, image;       // of a job that a dry run writes
  std::vector<SaidOption> said;      // all options
  std::optional<int> build_only;     // build this rank of the plan alone
  std::string show_samples;          // of these steps, "3-5"; start nothing
};

// Whether the cluster makes the pods of a manifest again, as often as --max-restarts says, instead
// of the smp-launch in them. It does so for pods that come by themselves, and for an MPIJob whose
// launcher goes on from the last checkpoint.
bool cluster_restarts(const LaunchRequest& request);

}  // namespace smp::request
