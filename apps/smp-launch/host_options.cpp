#include "host_options.h"

#include <errno.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <utility>

#include "command_line.h"
#include "option_values.h"
#include "smp/launcher/duration.h"
#include "smp/plan/errors.h"
#include "smp/plan/text_file.h"

namespace smp {
namespace {

constexpr std::chrono::milliseconds kLeastSilence{500};
// Where the hosts could come from, one day, without being named.
constexpr std::array kSchedulers = {"k8s", "lsf", "pbs", "local"};

}  // namespace

HostOptions::HostOptions(CLI::App& app, HostRequest& request)
    : request_(request), meeting_(app, request.meeting) {
  app.add_option(
         "--hosts", request.hosts,
         "run on these hosts, as in node[01-16,20]:8,big:4@gpu=0,2-4,user@10.0.0.1:2222:8: "
         "name, port, ranks; or slurm: those of the allocation that this is; or sagemaker: those "
         "of its training job, on each of which smp-launch is started (default: in "
         "this process, on this host)")
      ->type_name("LIST");
  app.add_option("--hostfile", request.hostfile,
                 "... on the hosts of a file, a line each, as for Open MPI, MPICH or DeepSpeed")
      ->type_name("FILE");
  app.add_option("--exclude", request.exclude, "hosts to leave out, as in node[03-04]")
      ->type_name("LIST");
  app.add_option("--via", request.transport.via,
                 "how to reach them: ssh (default), srun (default with --hosts slurm), local (all "
                 "on this machine), or exec:COMMAND, "
                 "which joins its standard streams to $SMP_AGENT --agent on host $SMP_HOST")
      ->type_name("HOW");
  app.add_option("--ssh-args", request.transport.ssh_arguments, "more arguments for ssh")
      ->type_name("ARGS");
  app.add_option("--agent-path", request.transport.agent,
                 "smp-launch on the hosts (default: where it is here)")
      ->type_name("PATH");
  app.add_option("--interface", request.interface,
                 "network interface of rank 0's host whose address the ranks meet at, as in eth0")
      ->type_name("NAME");
  app.add_option("--host-timeout", silence_,
                 "a host that says nothing for so long is lost (default: 3s)")
      ->type_name("TIME");
  app.add_option("--connect-timeout", connect_timeout_,
                 "time for reaching all hosts (default: 30s)")
      ->type_name("TIME");
  app.add_option(
         "--env", request.forward.named,
         "a variable for the ranks: NAME=value, or NAME for smp-launch's own; repeat it for "
         "more")
      ->type_name("VARIABLE")
      ->allow_extra_args(false);
  app.add_option("--env-file", env_file_, "a file of them, one a line")->type_name("FILE");
  app.add_flag("--env-all", request.forward.all,
               "ranks of other hosts get all of smp-launch's environment, but what looks secret "
               "(default: PATH, LD_LIBRARY_PATH, PYTHON*, NCCL_*, TORCH_*, OMP_*, CUDA_* and the "
               "like)")
      ->disable_flag_override();
}

// Hosts that come by themselves are not reached.
void HostOptions::check_meeting() const {
  if (!request_.hosts.empty() || !request_.hostfile.empty())
    throw UsageError("the hosts come by themselves: leave --hosts and --hostfile out");
  const std::array<std::pair<const char*, bool>, 4> for_reached = {{
      {"--exclude", !request_.exclude.empty()},
      {"--via", !request_.transport.via.empty()},
      {"--ssh-args", !request_.transport.ssh_arguments.empty()},
      {"--agent-path", !request_.transport.agent.empty()},
  }};
  for (const auto& [option, given] : for_reached) {
    if (given)
      throw UsageError(
          fmt::format("{} is for hosts that smp-launch reaches, these come by themselves", option));
  }
}

void HostOptions::finish(bool prints) {
  if (request_.hosts == kSageMaker) {
    request_.sagemaker = true;
    request_.hosts.clear();
    read_sagemaker(request_.meeting, request_.interface);
  }
  meeting_.finish(prints);
  if (request_.meeting.wanted()) {
    check_meeting();
    request_.transport.via = "local";  // the agent of the host that leads
  }
  const std::array<std::pair<const char*, bool>, 8> for_hosts = {{
      {"--exclude", !request_.exclude.empty()},
      {"--via", !request_.transport.via.empty()},
      {"--ssh-args", !request_.transport.ssh_arguments.empty()},
      {"--agent-path", !request_.transport.agent.empty()},
      {"--interface", !request_.interface.empty()},
      {"--host-timeout", !silence_.empty()},
      {"--connect-timeout", !connect_timeout_.empty()},
      {"--env-all", request_.forward.all},
  }};
  for (const auto& [option, given] : for_hosts) {
    if (given && !request_.several())
      throw UsageError(
          fmt::format("{} is for other hosts: name them with --hosts or --hostfile", option));
  }
  if (!request_.hosts.empty() && !request_.hostfile.empty())
    throw UsageError("both --hosts and --hostfile: the hosts come from one of them");
  for (const char* scheduler : kSchedulers) {
    if (request_.hosts == scheduler)
      throw UsageError(
          fmt::format("--hosts {}: this version does not ask for hosts: name them", scheduler));
  }
  if (request_.transport.via.empty())
    request_.transport.via = request_.hosts == kSlurm ? "srun" : "ssh";
  if (!silence_.empty()) request_.silence = duration_of("--host-timeout", silence_);
  if (request_.silence < kLeastSilence)
    throw UsageError(
        fmt::format("--host-timeout '{}': at least {}", silence_, text_of(kLeastSilence)));
  if (!connect_timeout_.empty())
    request_.connect_timeout = duration_of("--connect-timeout", connect_timeout_);
  try {
    for (const std::string& variable : request_.forward.named) check_variable("--env", variable);
    make_transport(request_.transport);
  } catch (const ConfigError& error) {
    throw UsageError(error.what());
  }
  if (env_file_.empty()) return;
  const std::vector<std::string> more =
      parse_env_file(env_file_, read_text_file(env_file_, "file of variables"));
  // The command line comes last, and so counts.
  request_.forward.named.insert(request_.forward.named.begin(), more.begin(), more.end());
}

}  // namespace smp
