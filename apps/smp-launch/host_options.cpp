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
  throw request::UsageError(fmt::format("--visible-gpus '{}': it is none, all-local or one", text));
}

}  // namespace

HostOptions::HostOptions(CLI::App& app, request::HostRequest& request)
    : request_(request), rendezvous_(app, request.rendezvous) {
  app.add_option(
         "--hosts", request.hosts,
         "run on these hosts, as in node[01-16,20]:8,big:4@gpu=0,2-4,user@10.0.0.1:2222:8: "
         "name, port, ranks; or slurm, lsf, pbs: those of the job that this is part of; or "
         "sagemaker, k8s: those of the job, on each of which smp-launch is started; or local: "
         "this one, in this process (default); or auto: whichever of these it is")
      ->type_name("LIST");
  app.add_option("--hostfile", request.hostfile,
                 "... on the hosts of a file, a line each, as for Open MPI, MPICH or DeepSpeed")
      ->type_name("FILE");
  app.add_option("--exclude", request.exclude, "hosts to leave out, as in node[03-04]")
      ->type_name("LIST");
  app.add_option("--via", request.transport.via,
                 "how to reach them: ssh (default), srun (default with --hosts slurm), mpirun "
                 "(of Open MPI or MPICH, as it reaches them), local (all on this machine), or "
                 "exec:COMMAND, "
                 "which joins its standard streams to $SMP_AGENT --agent on host $SMP_HOST")
      ->type_name("HOW");
  app.add_option("--ssh-args", request.transport.ssh_arguments, "more arguments for ssh")
      ->type_name("ARGS");
  app.add_option("--mpirun-args", request.mpirun_arguments, "more arguments for --via mpirun")
      ->type_name("ARGS");
  app.add_option("--agent-path", request.transport.agent,
                 "smp-launch on the hosts (default: where it is here)")
      ->type_name("PATH");
  app.add_option("--topology", request.topology,
                 "the switches between the hosts, by which the hosts are ordered: a file of Slurm "
                 "(topology.conf) or EC2 (describe-instance-topology, and describe-instances "
                 "for the names: repeat it), slurm (default with --hosts slurm), or off")
      ->type_name("FILE|slurm|off")
      ->allow_extra_args(false);
  app.add_option("--interface", request.interface,
                 "network interface of rank 0's host whose address the ranks meet at, as in eth0")
      ->type_name("NAME");
  app.add_option("--host-timeout", host_timeout_,
                 "heartbeat time-out, after which a host is lost (default: 3s)")
      ->type_name("TIME");
  app.add_option("--connect-timeout", connect_timeout_,
                 "time in which all hosts must be reached (default: 30s)")
      ->type_name("TIME");
  app.add_option("--fan-out", fan_out_,
                 "hosts that smp-launch reaches itself; each of their agents reaches as many "
                 "others (default: 32 with more than 64 hosts)")
      ->type_name("N");
  app.add_option(
         "--env", request.forward.named,
         "a variable for the ranks: NAME=value, or NAME for smp-launch's own; repeat it for "
         "more")
      ->type_name("VARIABLE")
      ->allow_extra_args(false);
  app.add_option("--push", request.push,
                 "send a file or folder to every host; its ranks run in a folder of the copies, "
                 "which is removed at the end; repeat it for more")
      ->type_name("PATH")
      ->allow_extra_args(false);
  app.add_option("--env-file", env_file_, "a file of them, one a line")->type_name("FILE");
  app.add_flag("--env-all", request.forward.all,
               "ranks of other hosts get all of smp-launch's environment, but what looks secret "
               "(default: PATH, LD_LIBRARY_PATH, PYTHON*, NCCL_*, TORCH_*, OMP_*, CUDA_* and the "
               "like)")
      ->disable_flag_override();
  app.add_option("--visible-gpus", visible_gpus_,
                 "which GPUs of its host a rank sees (CUDA_VISIBLE_DEVICES): all-local (default: "
                 "those of gpu=, or as inherited), one (the one of its own, which is then its "
                 "first), or none")
      ->type_name("none|all-local|one");
  app.add_flag("--sagemaker-env", request.sagemaker_variables,
               "ranks get SM_HOSTS, SM_CURRENT_HOST and SM_NUM_GPUS, as scripts for SageMaker read "
               "them")
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
          fmt::format("{} is for hosts that smp-launch reaches, these come by themselves", option));
  }
}

void HostOptions::finish(bool prints) {
  const bool says_hosts = !request_.hosts.empty() || !request_.hostfile.empty();
  schedulers::resolve_hosts(request_);
  if (says_hosts && rendezvous_.by_hand())
    throw request::UsageError(
        "--nnodes, --node-rank and --inside are for hosts that come by themselves: leave them out, "
        "or --hosts and --hostfile");
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
      throw request::UsageError(
          fmt::format("{} is for other hosts: name them with --hosts or --hostfile", option));
  }
  for (const char* word : {request::kSlurm, request::kOff}) {
    const auto& said = request_.topology;
    if (said.size() > 1 && std::find(said.begin(), said.end(), word) != said.end())
      throw request::UsageError(fmt::format("--topology {}: alone, or files without it", word));
  }
  if (request_.transport.via.empty()) request_.transport.via = "ssh";
  if (!host_timeout_.empty())
    request_.heartbeat_timeout = duration_of("--host-timeout", host_timeout_);
  if (request_.heartbeat_timeout < kLeastHostTimeout)
    throw request::UsageError(fmt::format("--host-timeout '{}': at least {}", host_timeout_,
                                          hosts::duration_text(kLeastHostTimeout)));
  if (!fan_out_.empty()) {
    const auto number = whole_number(fan_out_);
    if (!number || *number < 2 || *number > kMostFanOut)
      throw request::UsageError(
          fmt::format("--fan-out '{}': a whole number from 2 to {}", fan_out_, kMostFanOut));
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
      throw ConfigError(fmt::format("--fan-out: {} reaches all hosts by itself: leave it out",
                                    request_.transport.via));
    if (by_mpirun && !request_.transport.ssh_arguments.empty())
      throw ConfigError("--ssh-args is for --via ssh: mpirun takes --mpirun-args");
    if (by_mpirun) hosts::words_of_command("--mpirun-args", request_.mpirun_arguments);
    if (request_.starts_all() && !request_.transport.ssh_arguments.empty())
      throw ConfigError("--ssh-args is for --via ssh, not for --via srun");
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
      throw request::UsageError(fmt::format("{} {}: smp-launch sets it itself: leave it out",
                                            request_.option_of(name), name));
    if (request_.sagemaker_variables && environment::is_of_sagemaker(name))
      throw request::UsageError(fmt::format("both {} {} and --sagemaker-env: leave one out",
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
