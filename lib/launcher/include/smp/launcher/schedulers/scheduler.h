#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "smp/launcher/hosts/host_list.h"
#include "smp/launcher/reach/agent_transport.h"
#include "smp/launcher/request/prepared_job.h"
#include "smp/launcher/schedulers/mpi_rank.h"

// Everything that launching a job needs of schedulers: Slurm, LSF, PBS, Kubernetes, SageMaker and
// mpirun. The other headers of this folder are parts of it.
namespace smp::schedulers {

// Replaces a word of --hosts by what it stands for. `auto` becomes the scheduler whose variables
// are set here, and request.notes say which. `sagemaker` and `k8s` become a start by hand on each
// host. `local` becomes this host. Throws UsageError.
void resolve_hosts(request::HostRequest& request);

// The hosts of Slurm's allocation, or of LSF's or PBS's job. Nothing if --hosts names none of
// these. Throws ConfigError.
std::optional<std::vector<hosts::HostSpec>> allocated_hosts(const request::HostRequest& request);

// Puts the hosts in the order that follows from the switches between them, where a file or Slurm
// describes these. Slurm is asked if --topology says so, else only if `asks`. Returns what to say
// about it; empty: nothing. Throws ConfigError.
std::string order_hosts(std::vector<hosts::HostSpec>& hosts, const request::HostRequest& request,
                        bool asks);

// Throws ConfigError where --via srun has no allocation to make a step of.
void require_allocation(const request::HostRequest& request);

// Starts the agents of all hosts by one srun or mpirun, and waits for them: --via names it. A
// number if one of `ending_signals` ended the waiting. Throws ConfigError, StartError,
// std::runtime_error.
std::optional<int> start_all_agents(const request::HostRequest& request,
                                    const std::vector<hosts::HostSpec>& hosts,
                                    const std::set<int>& ending_signals, int control_fd,
                                    std::unique_ptr<reach::AgentTransport>& transport);

// smp-launch --agent --meet HOST:PORT --node-rank RANK, as the mpirun of start_all_agents() starts
// it on the host that is number RANK of the job. Returns the exit code.
int run_mpirun_agent(const std::string& place, int64_t node_rank);

// smp-launch --agent --meet [HOST]:PORT --connect-timeout TIME, as its srun starts it. Returns the
// exit code. Throws ConfigError, std::runtime_error.
int run_srun_agent(const std::string& place, const std::string& time);

// The command by which the scheduler starts this job again; empty: none is known.
std::string requeue_command();

// SageMaker shows this text as the reason of a failed training job. Throws ConfigError.
void report_failure_to_sagemaker(const std::string& text);

// The job in the form of request.dry_run: a script for the shell or Slurm, or a manifest for
// Kubernetes. Throws ConfigError.
std::string written_job(const request::PreparedJob& job);

}  // namespace smp::schedulers
