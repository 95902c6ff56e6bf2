#pragma once

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "meeting_options.h"
#include "smp/launcher/environment/forwarding.h"
#include "smp/launcher/reach/transport.h"

namespace CLI {
class App;
}

namespace smp {

// As --hosts: those of an allocation of Slurm, a job of LSF or PBS, a training job of SageMaker, a
// job of Kubernetes; this one; or whichever of them it is.
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

// The GPUs of a host that a rank sees: none, all that the host's ranks use, or the one of its own.
enum class VisibleGpus { kNone, kAllLocal, kOne };

// What the user says about hosts; without any, ranks run on this one.
struct HostRequest {
  std::string hosts, hostfile, exclude;
  std::vector<std::string> notes;  // what --hosts auto came to, and the like, for the user
  reach::TransportOptions transport;
  std::string mpirun_arguments;
  std::vector<std::string> topology;  // files of it, or kSlurm, or kOff; none: Slurm's own
  std::string interface;              // whose address the ranks meet at
  std::chrono::milliseconds silence{3000};
  std::chrono::milliseconds connect_timeout{30'000};
  std::optional<int> fan_out;  // agents that one of them reaches; not said: 32 above 64
  environment::ForwardRules forward;
  std::set<std::string> mpi_variables;  // names that kMpiVariable has added to forward.named
  VisibleGpus visible_gpus = VisibleGpus::kAllLocal;
  bool sagemaker_variables = false;  // ranks get SM_HOSTS and the like
  std::vector<std::string> push;     // files and folders that the hosts get

  MeetingRequest meeting;
  bool sagemaker = false;  // this is a training job of SageMaker

  // One mpirun starts all agents, and only smp-launch's own srun: a step inside a step would lack
  // the allocation's variables.
  bool starts_all() const { return transport.via == kSrun || transport.via == kMpirun; }
  // What has named a variable of forward.named, in the user's words.
  const char* option_of(const std::string& variable) const {
    return mpi_variables.count(variable) != 0 ? kMpiVariable : "--env";
  }
  bool several() const { return !hosts.empty() || !hostfile.empty() || meeting.wanted(); }
};

// The options about hosts and environment, on their way from CLI11 into a HostRequest.
class HostOptions {
 public:
  HostOptions(CLI::App& app, HostRequest& request);
  // After the command line was parsed; `prints`: for a dry run. Throws UsageError.
  void finish(bool prints);

 private:
  void check_meeting() const;
  void read_env_file();
  void check_variables() const;

  HostRequest& request_;
  std::string silence_, connect_timeout_, env_file_, fan_out_, visible_gpus_;
  MeetingOptions meeting_;
};

}  // namespace smp
