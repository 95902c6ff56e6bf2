#include "host_options.h"

#include <errno.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <utility>

#include "command_line.h"
#include "option_values.h"
#include "smp/launcher/environment/rank_environment.h"
#include "smp/launcher/hosts/duration.h"
#include "smp/launcher/hosts/shell_words.h"
#include "smp/launcher/request/usage_error.h"
#include "smp/launcher/schedulers/scheduler.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/files/text_file.h"

namespace smp {
namespace {

constexpr std::chrono::milliseconds kLeastHostTimeout{500};
constexpr int kMostFanOut = 1024;  // each agent that is reached is a process here

request::VisibleGpus visible_gpus_of(const std::string& text) {
  if (text == "none") return request::VisibleGpus::kNone;
  if (text == "all-local") return request::VisibleGpus::kAllLocal;
  if (text == "one") return request::VisibleGpus::kOne;
  throw request::UsageError(
      fmt::format("--visible-gpus '{}': expected none, all-local or one", text));
}

}  // namespace

HostOptions::HostOptions(CLI::App& app, request::HostRequest& request)
    : request_(request), rendezvous_(app, request.rendezvous) {
  app.add_option("--hosts", request.hosts,
                 "run on these hosts (name, port, ranks), as in "
                 "node[01-16,20]:8,big:4@gpu=0,2-4,user@10.0.0.1:2222:8. slurm, lsf, pbs: the "
                 "hosts of this scheduler's job. sagemaker, k8s: the hosts of the job, each of "
                 "which starts smp-launch. local: this host (default). auto: the scheduler or "
                 "platform that has started smp-launch, else local")
      ->type_name("LIST");
  app.add_option("--hostfile", request.hostfile,
                 "run on the hosts of this file, one host a line, in the format of Open MPI, MPICH "
                 "or DeepSpeed")
      ->type_name("FILE");
  app.add_option("--exclude", request.exclude, "hosts to leave out, as in node[03-04]")
      ->type_name("LIST");
  app.add_option("--via", request.transport.via,
                 "how to reach the hosts: ssh (default), srun (default with --hosts slurm), mpirun "
                 "(of Open MPI or MPICH), local (all of them are this machine), or exec:COMMAND, a "
                 "command that runs $SMP_AGENT --agent on host $SMP_HOST and connects its own "
                 "standard streams to that process")
      ->type_name("HOW");
  app.add_option("--ssh-args", request.transport.ssh_arguments, "more arguments for ssh")
      ->type_name("ARGS");
  app.add_option("--mpirun-args", request.mpirun_arguments, "more arguments for --via mpirun")
      ->type_name("ARGS");
  app.add_option("--agent-path", request.transport.agent,
                 "path of smp-launch on the hosts (default: its path on this host)")
      ->type_name("PATH");
  app.add_option("--topology", request.topology,
                 "switches between the hosts, which set the order of the hosts: a file of Slurm "
                 "(topology.conf) or EC2 (describe-instance-topology, and describe-instances for "
                 "the names; may be repeated), slurm (default with --hosts slurm), or off")
      ->type_name("FILE|slurm|off")
      ->allow_extra_args(false);
  app.add_option(
         "--interface", request.interface,
         "network interface of rank 0's host whose address the ranks connect to, as in eth0")
      ->type_name("NAME");
  app.add_option("--host-timeout", host_timeout_,
                 "heartbeat time-out: a host that is silent for this time is lost (default: 3s)")
      ->type_name("TIME");
  app.add_option("--connect-timeout", connect_timeout_,
                 "time limit for reaching all hosts (default: 30s)")
      ->type_name("TIME");
  app.add_option("--fan-out", fan_out_,
                 "number of hosts that smp-launch reaches itself; the agent of each reaches at "
                 "most as many further hosts (default: 32 with more than 64 hosts)")
      ->type_name("N");
  app.add_option("--env", request.forward.named,
                 "set an environment variable of the ranks: NAME=value, or NAME to pass on "
                 "smp-launch's value; may be repeated")
      ->type_name("VARIABLE")
      ->allow_extra_args(false);
  app.add_option("--push", request.push,
                 "send a file or folder to every host; the ranks run in a folder with the copies, "
                 "which is removed at the end; may be repeated")
      ->type_name("PATH")
      ->allow_extra_args(false);
  app.add_option("--env-file", env_file_, "file of variables for --env, one a line")
      ->type_name("FILE");
  app.add_flag("--env-all", request.forward.all,
               "pass all of smp-launch's environment to ranks on other hosts, except variables "
               "that look secret (default: PATH, LD_LIBRARY_PATH, PYTHON*, NCCL_*, TORCH_*, OMP_*, "
               "CUDA_* and similar ones)")
      ->disable_flag_override();
  app.add_option("--visible-gpus", visible_gpus_,
                 "GPUs of its host that a rank sees (CUDA_VISIBLE_DEVICES): all-local (default: "
                 "the GPUs of gpu=, or as inherited), one (only its own GPU, as device 0), or none")
      ->type_name("none|all-local|one");
  app.add_flag("--sagemaker-env", request.sagemaker_variables,
               "set SM_HOSTS, SM_CURRENT_HOST and SM_NUM_GPUS for the ranks, as SageMaker does for "
               "its scripts")
      ->disable_flag_override();
}

// Refuses options for reached hosts where the hosts join a rendezvous.
void HostOptions::check_rendezvous() const {
  const std::array<std::pair<const char*, bool>, 6> for_reached = {{
      {"--exclude", !request_.exclude.empty()},
      {"--via", !request_.transport.via.empty()},
      {"--ssh-args", !request_.transport.ssh_arguments.empty()},
      {"--agent-path", !request_.transport.agent.empty()},
      {"--topology", !request_.topology.empty()},
      {"--fan-out", !fan_out_.empty()},
  }};
  for (const auto& [option, given] : for_reached) {
    if (given)
      throw request::UsageError(
          fmt::format("{} is for hosts that smp-launch reaches itself: leave the option out, "
                      "because each host of this job starts smp-launch",
                      option));
  }
}

void HostOptions::finish(bool prints) {
  const bool says_hosts = !request_.hosts.empty() || !request_.hostfile.empty();
  schedulers::resolve_hosts(request_);
  if (says_hosts && rendezvous_.by_hand())
    throw request::UsageError(
        "--nnodes, --node-rank and --inside are for jobs whose hosts each start smp-launch: leave "
        "these three options out, or leave --hosts and --hostfile out");
  if (request_.transport.via.empty() && request_.hosts == request::kSlurm)
    request_.transport.via = request::kSrun;
  const bool by_mpirun = request_.transport.via == request::kMpirun;
  rendezvous_.finish(prints, request_.starts_all());
  if (request_.rendezvous.wanted()) {
    check_rendezvous();
    request_.transport.via = request::kLocal;  // the agent of the host that leads
  }
  const std::array<std::pair<const char*, bool>, 11> for_hosts = {{
      {"--exclude", !request_.exclude.empty()},
      {"--via", !request_.transport.via.empty()},
      {"--ssh-args", !request_.transport.ssh_arguments.empty()},
      {"--agent-path", !request_.transport.agent.empty()},
      {"--topology", !request_.topology.empty()},
      {"--interface", !request_.interface.empty()},
      {"--host-timeout", !host_timeout_.empty()},
      {"--connect-timeout", !connect_timeout_.empty()},
      {"--fan-out", !fan_out_.empty()},
      {"--env-all", request_.forward.all},
      {"--push", !request_.push.empty()},
  }};
  for (const auto& [option, given] : for_hosts) {
    if (given && !request_.several())
      throw request::UsageError(fmt::format(
          "{} is for jobs on other hosts: name the hosts with --hosts or --hostfile", option));
  }
  for (const char* word : {request::kSlurm, request::kOff}) {
    const auto& said = request_.topology;
    if (said.size() > 1 && std::find(said.begin(), said.end(), word) != said.end())
      throw request::UsageError(
          fmt::format("--topology {}: this value excludes other values of --topology", word));
  }
  if (request_.transport.via.empty()) request_.transport.via = "ssh";
  if (!host_timeout_.empty())
    request_.heartbeat_timeout = duration_of("--host-timeout", host_timeout_);
  if (request_.heartbeat_timeout < kLeastHostTimeout)
    throw request::UsageError(fmt::format("--host-timeout '{}': expected at least {}",
                                          host_timeout_, hosts::duration_text(kLeastHostTimeout)));
  if (!fan_out_.empty()) {
    const auto number = whole_number(fan_out_);
    if (!number || *number < 2 || *number > kMostFanOut)
      throw request::UsageError(fmt::format("--fan-out '{}': expected a whole number from 2 to {}",
                                            fan_out_, kMostFanOut));
    request_.fan_out = static_cast<int>(*number);
  }
  if (!connect_timeout_.empty())
    request_.connect_timeout = duration_of("--connect-timeout", connect_timeout_);
  try {
    for (const std::string& variable : request_.forward.named)
      environment::check_variable("--env", variable);
    if (!by_mpirun && !request_.mpirun_arguments.empty())
      throw ConfigError("--mpirun-args is for --via mpirun");
    if (request_.starts_all() && request_.fan_out)
      throw ConfigError(fmt::format("--fan-out: {} itself reaches all hosts: leave --fan-out out",
                                    request_.transport.via));
    if (by_mpirun && !request_.transport.ssh_arguments.empty())
      throw ConfigError(
          "--ssh-args cannot be used with --via mpirun: give arguments of mpirun with "
          "--mpirun-args");
    if (by_mpirun) hosts::words_of_command("--mpirun-args", request_.mpirun_arguments);
    if (request_.starts_all() && !request_.transport.ssh_arguments.empty())
      throw ConfigError("--ssh-args cannot be used with --via srun: it needs --via ssh");
    if (!request_.starts_all()) reach::make_agent_transport(request_.transport);
  } catch (const ConfigError& error) {
    throw request::UsageError(error.what());
  }
  read_env_file();
  check_variables();
  if (!visible_gpus_.empty()) request_.visible_gpus = visible_gpus_of(visible_gpus_);
}

void HostOptions::check_variables() const {
  for (const std::string& variable : request_.forward.named) {
    const std::string name = variable.substr(0, variable.find('='));
    if (environment::is_set_by_launcher(name))
      throw request::UsageError(
          fmt::format("{} {}: smp-launch sets this variable itself: leave it out",
                      request_.option_of(name), name));
    if (request_.sagemaker_variables && environment::is_of_sagemaker(name))
      throw request::UsageError(
          fmt::format("{} {} and --sagemaker-env set the same variable: leave one of the two out",
                      request_.option_of(name), name));
  }
}

void HostOptions::read_env_file() {
  if (env_file_.empty()) return;
  const std::vector<std::string> more =
      environment::parse_env_file(env_file_, files::read_text_file(env_file_, "file of variables"));
  // The last value counts, so the command line goes behind.
  request_.forward.named.insert(request_.forward.named.begin(), more.begin(), more.end());
}

}  // namespace smp
