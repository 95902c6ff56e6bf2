#include "smp/launcher/schedulers/scheduler.h"

#include "job_script.h"
#include "manifests.h"
#include "smp/launcher/environment/rank_environment.h"
#include "smp/launcher/environment/variables.h"
#include "smp/launcher/schedulers/mpirun_transport.h"
#include "smp/launcher/schedulers/sagemaker_job.h"
#include "smp/launcher/schedulers/srun_transport.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/files/text_file.h"

namespace smp::schedulers {

// Without an allocation each srun is a job of its own, which Slurm keeps when that srun is killed.
void require_allocation(const request::HostRequest& request) {
  if (request.transport.via == request::kSrun &&
      !environment::value_in(environment::own_environment(), "SLURM_JOB_ID"))
    throw ConfigError(
        "--via srun: this is not an allocation of Slurm (SLURM_JOB_ID is not set): run smp-launch "
        "under salloc or in a script of sbatch");
}

std::optional<int> start_all_agents(const request::HostRequest& request,
                                    const std::vector<hosts::HostSpec>& hosts,
                                    const std::set<int>& ending_signals, int control_fd,
                                    std::unique_ptr<reach::AgentTransport>& transport) {
  const AllHostsOptions options{request.mpirun_arguments, request.transport.agent,
                                request.rendezvous.endpoint, request.connect_timeout,
                                ending_signals};
  std::unique_ptr<AllHostsTransport> gathering;
  if (request.transport.via == request::kSrun)
    gathering = std::make_unique<SrunTransport>(hosts, options);
  else
    gathering = std::make_unique<MpirunTransport>(hosts, options);
  const auto number = gathering->gather(control_fd);
  transport = std::move(gathering);
  return number;
}

int run_mpirun_agent(const std::string& place, int64_t node_rank) {
  return run_agent_of_mpirun(place, node_rank);
}

int run_srun_agent(const std::string& place, const std::string& time) {
  return run_agent_of_srun(place, time);
}

// Slurm requeues jobs of sbatch only, not those of salloc.
std::string requeue_command() {
  const std::vector<std::string> own = environment::own_environment();
  const auto number = environment::value_in(own, "SLURM_JOB_ID");
  const bool is_batch = environment::value_in(own, "ENVIRONMENT") == "BATCH";
  return number && is_batch ? "scontrol requeue " + *number : "";
}

void report_failure_to_sagemaker(const std::string& text) {
  const std::string path = sagemaker_folder(environment::own_environment()) + "/output/failure";
  files::write_text_file(path, text, path);  // whatever a program left there
}

std::string written_job(const request::PreparedJob& job) {
  switch (job.request.dry_run) {
    case request::DryRun::kSh: return shell_script(job);
    case request::DryRun::kSbatch: return sbatch_script(job);
    case request::DryRun::kJobset: return jobset_manifest(job);
    case request::DryRun::kMpijob: return mpijob_manifest(job);
    case request::DryRun::kTrainjob: return trainjob_manifest(job);
    default: return lws_manifest(job);
  }
}

}  // namespace smp::schedulers
