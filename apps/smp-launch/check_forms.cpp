#include "check_forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "smp/launcher/request/usage_error.h"

namespace smp {
namespace {

// Options that have an effect beside --build-only, and in a script for the shell.
constexpr std::array kOfBuildOnly = {"--build-only", "--env", "--env-file"};
constexpr std::array kOfSamples = {"--show-samples"};
constexpr std::array kOfShell = {
    "--dry-run", "-n",    "--run-dir",  "--resume", "--hosts",        "--hostfile",
    "--exclude", "--env", "--env-file", "--bind",   "--comm-timeout", "--tensor-across-hosts"};

std::string words_text(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

void refuse_others(const request::LaunchRequest& request, std::span<const char* const> allowed,
                   const char* what) {
  for (const request::SaidOption& option : request.said) {
    if (std::find(allowed.begin(), allowed.end(), option.name) == allowed.end())
      throw request::UsageError(fmt::format("{}: leave {} out", what, option.name));
  }
}

void check_status(const request::LaunchRequest& request) {
  if (!request.plan.empty() || !request.program.empty())
    throw request::UsageError("--status starts nothing: leave the plan or the program out");
  constexpr std::array kOfStatus = {"--status"};
  refuse_others(request, kOfStatus, "--status starts nothing");
}

// Options of written jobs, and what these need.
void check_written_job(const request::LaunchRequest& request) {
  const bool manifest = is_manifest(request.dry_run);
  if (!request.image.empty() && !manifest)
    throw request::UsageError("--image is for --dry-run=jobset, mpijob, trainjob and lws");
  if (!request.job_name.empty() && !manifest && request.dry_run != request::DryRun::kSbatch)
    throw request::UsageError(
        "--job-name is for --dry-run=sbatch, jobset, mpijob, trainjob and lws");
  if (manifest && request.image.empty())
    throw request::UsageError(
        "a manifest needs --image, the container image that holds smp-launch and the job");
  if (manifest && request.hosts.several() && !request.hosts.rendezvous.wanted())
    throw request::UsageError(
        "a manifest cannot name its hosts, whose pods do not exist yet: leave --hosts out, and "
        "give --nnodes for a program");
  if (request.dry_run == request::DryRun::kSh && request.binding != local::Binding::kNone)
    throw request::UsageError(
        "--dry-run=sh cannot bind ranks, because it does not look up the CPUs of the hosts: leave "
        "--bind out");
  if (request.dry_run == request::DryRun::kSh)
    refuse_others(request, kOfShell, "--dry-run=sh writes a script that runs without smp-launch");
  if (request.dry_run == request::DryRun::kSh && !request.plan.empty() && request.run_dir.empty())
    throw request::UsageError(
        "--dry-run=sh of a plan needs --run-dir: the default folder's name has the time of the "
        "start");
  if (request.dry_run == request::DryRun::kSh && request.resume == request::kResumeIfAny)
    throw request::UsageError(
        "--dry-run=sh cannot look for a checkpoint when its script starts: give --resume, or leave "
        "--resume=if-any out");
}

// --max-restarts: smp-launch restarts ranks on hosts that it reaches, and the cluster restarts
// pods.
void check_restarts(const request::LaunchRequest& request) {
  if (request.watch.restarts.most == 0) return;
  if (request.hosts.rendezvous.wanted() && !is_manifest(request.dry_run))
    throw request::UsageError(
        "--max-restarts needs hosts that smp-launch reaches itself: name the hosts with --hosts");
  if (request.dry_run == request::DryRun::kLws)
    throw request::UsageError(
        "--max-restarts: a LeaderWorkerSet always restarts its pods: leave --max-restarts out, or "
        "use --dry-run=jobset");
  if (!cluster_restarts(request)) return;
  if (!request.plan.empty() && request.resume != request::kResumeIfAny)
    throw request::UsageError(
        "--max-restarts: the cluster restarts the pods with the same command: add --resume=if-any, "
        "so that the ranks resume from the last checkpoint");
  for (const request::SaidOption& option : request.said) {
    if (option.name == "--restart-pause" || option.name == "--spares")
      throw request::UsageError(
          fmt::format("{} is for restarts by smp-launch, but the cluster restarts these pods: "
                      "leave the option out",
                      option.name));
  }
}

}  // namespace

// The number may come from mpirun, from SageMaker's GPUs, or from a pod.
void take_outer_ranks(request::LaunchRequest& request) {
  const request::RendezvousRequest& rendezvous = request.hosts.rendezvous;
  if (rendezvous.pods && rendezvous.slots == 0 && request.plan.empty() && request.ranks == 0)
    throw request::UsageError(
        "--hosts k8s: the number of ranks is missing: give the total over all pods, as in -n 32");
  const int outer = request.hosts.rendezvous.ranks;
  if (request.hosts.sagemaker && outer == 0 && request.plan.empty() && request.ranks == 0)
    throw request::UsageError(
        "SageMaker's hosts have no GPUs, so the number of ranks is unknown: give -n, as in -n 4");
  if (outer == 0 || !request.plan.empty()) return;
  if (request.ranks == 0) request.ranks = outer;
  if (request.ranks != outer && (!request.hosts.sagemaker || rendezvous.slots != 0))
    throw request::UsageError(fmt::format("-n gives {} ranks, but {} has started {}: leave -n out",
                                          request.ranks, request.hosts.rendezvous.starter, outer));
}

void check_forms(const request::LaunchRequest& request, bool has_program_mark,
                 const std::string& ranks) {
  if (has_program_mark && request.program.empty())
    throw request::UsageError("no program behind '--'");
  if (request.check && request.hosts.rendezvous.wanted())
    throw request::UsageError(
        "--check needs hosts that smp-launch reaches itself: name the hosts with --hosts");
  if (request.check && request.hosts.transport.via == request::kMpirun)
    throw request::UsageError("--check cannot reach hosts through mpirun: leave --via mpirun out");
  if (request.check && request.dry_run != request::DryRun::kNo)
    throw request::UsageError(
        "--check and --dry-run exclude each other: --check reaches the hosts, a dry run does not");
  if (!request.status_of.empty()) return check_status(request);
  if (request.plan.empty() && request.program.empty() && !request.check)
    throw request::UsageError(
        "nothing to launch: give a plan (smp-launch plan.yaml) or a program (smp-launch -n 4 -- "
        "program arguments)");
  if (!request.plan.empty() && !request.program.empty())
    throw request::UsageError(
        fmt::format("both a plan ('{}') and a program ('{}') are given: give only one",
                    request.plan, request.program.front()));
  if (!request.program.empty() && ranks.empty() && !request.hosts.several() &&
      request.hosts.rendezvous.ranks == 0)
    throw request::UsageError("the number of ranks is missing: give -n, as in smp-launch -n 4 -- " +
                              words_text(request.program));
  if (!request.plan.empty() && !ranks.empty())
    throw request::UsageError(
        fmt::format("-n is for programs, and a plan sets its own number of ranks: leave -n out, or "
                    "put '--' before a program, as in smp-launch -n {} -- {}",
                    ranks, request.plan));
  if (!request.program.empty() && request.program.front().empty())
    throw request::UsageError("the program behind '--' has an empty name");
  if (!request.resume.empty() && request.run_dir.empty())
    throw request::UsageError("--resume needs the run's folder, as in --resume --run-dir runs/a");
  if (!request.program.empty() && request.run_dir.empty() && request.output.asks_for_logs())
    throw request::UsageError(
        "logs of a program need a folder: give --run-dir, as in --run-dir runs/a");
  if (!request.program.empty() && !request.resume.empty())
    throw request::UsageError("--resume is for plans: a program loads its own checkpoints");
  if (!request.program.empty() && request.build_only)
    throw request::UsageError("--build-only is for plans: a program has no predicted memory");
  if (request.build_only)
    refuse_others(request, kOfBuildOnly, "--build-only builds one rank on this host");
  if (!request.show_samples.empty())
    refuse_others(request, kOfSamples, "--show-samples starts nothing");
  if (!request.program.empty() && request.comm_timeout)
    throw request::UsageError("--comm-timeout is for plans: a program has time-outs of its own");
  if (request.input_ranks != "none" && request.program.empty())
    throw request::UsageError("--stdin is for programs: a plan's ranks read their data from files");
  if (request.input_ranks != "none" && request.watch.restarts.most > 0)
    throw request::UsageError(
        "--stdin and --max-restarts exclude each other: restarted ranks cannot read standard input "
        "again");
  check_written_job(request);
  check_restarts(request);
}

}  // namespace smp
