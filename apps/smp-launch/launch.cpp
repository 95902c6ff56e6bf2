#include "launch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "checks.h"
#include "host_order.h"
#include "host_source.h"
#include "rank_places.h"
#include "resume.h"
#include "run_job.h"
#include "smp/launcher/agent/push.h"
#include "smp/launcher/environment/forwarding.h"
#include "smp/launcher/environment/outer_launcher.h"
#include "smp/launcher/environment/rank_environment.h"
#include "smp/launcher/hosts/rank_list.h"
#include "smp/launcher/process/guard.h"
#include "smp/launcher/run/run_folder.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/base/exit_code.h"
#include "smp/plan/data/data_files.h"
#include "smp/plan/env/environment.h"
#include "smp/plan/files/text_file.h"
#include "smp/plan/planfile/plan_file.h"
#include "spares.h"

namespace smp {
namespace {

constexpr const char* kWorker = "smp-worker";
constexpr size_t kMostGuests = 1024;  // each has a connection to the host that leads

std::filesystem::path own_program() {
  std::error_code error;
  std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error)
    throw std::runtime_error(
        fmt::format("/proc/self/exe: {}: smp-launch finds itself and the processes of its ranks in "
                    "/proc: mount it, as in mount -t proc proc /proc",
                    error.message()));
  return program;
}

// Locked, and as the checks found it.
run::RunFolder folder_for(const PreparedJob& job) {
  if (job.run_dir.empty()) return run::RunFolder::create_for(job.plan->job.name);
  if (!job.goes_on_if_any)
    return job.request.resume.empty() ? run::RunFolder::create(job.run_dir)
                                      : run::RunFolder::reopen(job.run_dir);
  run::RunFolder folder = run::RunFolder::go_on(job.run_dir);
  if (folder.checkpoint().empty() != job.request.resume.empty())
    throw ConfigError(fmt::format(
        "run folder '{}': another smp-launch has been in it meanwhile: start again", job.run_dir));
  return folder;
}

// Hosts that come by themselves, with the names that they have, if any.
std::vector<hosts::HostSpec> coming_hosts(const MeetingRequest& meeting) {
  std::vector<hosts::HostSpec> hosts(static_cast<size_t>(meeting.nnodes));
  for (size_t i = 0; i < hosts.size(); ++i) {
    hosts[i].name = meeting.names.empty() ? fmt::format("node{}", i) : meeting.names[i];
    hosts[i].slots = meeting.slots;
  }
  return hosts;
}

// The hosts that the user names, each with the ranks that it takes.
std::vector<hosts::HostSpec> hosts_of(const LaunchRequest& request, const std::optional<Plan>& plan,
                                      std::vector<hosts::HostSpec>& spares, std::string& order) {
  const HostRequest& said = request.hosts;
  if (!said.several()) return {};
  std::vector<hosts::HostSpec> hosts =
      said.meeting.wanted() ? coming_hosts(said.meeting) : named_hosts(said);
  if (!said.exclude.empty()) hosts = hosts::without_hosts(std::move(hosts), said.exclude);
  spares = take_spares(hosts, request.watch.spares);
  order = order_hosts(hosts, said, request.dry_run == DryRun::kNo);
  hosts::WantedRanks wanted;
  wanted.world_size = request.ranks;
  if (plan) {
    wanted.hosts = static_cast<int>(plan->job.cluster.hosts);
    wanted.processes_per_host = static_cast<int>(plan->job.cluster.processes_per_host);
  }
  hosts::settle_slots(hosts, wanted);
  if ((said.meeting.wanted() || said.transport.via == kMpirun) && hosts.size() > kMostGuests)
    throw ConfigError(
        fmt::format("{} hosts: {} at most may come by themselves; name them with --hosts",
                    hosts.size(), kMostGuests));
  if (hosts::slots_of(hosts) > kMostRanks)
    throw ConfigError(
        fmt::format("{} ranks: a job has {} at most", hosts::slots_of(hosts), kMostRanks));
  return hosts;
}

// It is written again and again beside the loop that watches the ranks.
void check_metrics_file(const std::string& path) {
  files::refuse_output(path, files::FileKind::kMetrics);
  std::error_code none;
  const auto status = std::filesystem::status(path, none);
  if (!std::filesystem::exists(status) || std::filesystem::is_regular_file(status)) return;
  throw ConfigError(fmt::format(
      "--prometheus: '{}' is no plain file: name one, or one that is not there yet", path));
}

}  // namespace

std::string own_folder() { return own_program().parent_path().string(); }

std::string comm_timeout_variable(std::chrono::milliseconds time) {
  return fmt::format("{}={:g}", env::kCommTimeout, static_cast<double>(time.count()) / 1000);
}

PreparedJob prepare(const LaunchRequest& request) {
  PreparedJob job;
  job.request = request;
  job.run_dir = request.run_dir;
  if (job.request.hosts.transport.agent.empty())
    job.request.hosts.transport.agent = own_program().string();
  // What is not set is an error now, not when hosts are reached.
  if (request.dry_run == DryRun::kNo)
    environment::named_variables(environment::own_environment(), request.hosts.forward.named);
  if (!request.plan.empty()) job.plan = planfile::read_plan(request.plan);
  if (job.plan) {
    for (const std::string& path : data::named_data(job.plan->job.training))
      files::remember_input(path);
  }
  job.hosts = hosts_of(request, job.plan, job.spares, job.host_order);
  if (job.plan)
    job.world_size = static_cast<int>(job.plan->degrees.world());
  else
    job.world_size = job.hosts.empty() ? std::max(1, request.ranks)
                                       : static_cast<int>(hosts::slots_of(job.hosts));
  check_gpus(job);
  if (!job.plan) {
    job.command = request.program;
    return job;
  }
  if (const int outer = request.hosts.meeting.ranks;
      outer != 0 && outer != job.world_size &&
      (!request.hosts.sagemaker || request.hosts.meeting.slots != 0))
    throw ConfigError(fmt::format("the plan has {} ranks, but {} has started {}: start as many",
                                  job.world_size, request.hosts.meeting.starter, outer));
  job.command = {own_folder() + "/" + kWorker};
  // The same text every time.
  const bool prints = request.dry_run == DryRun::kText || request.dry_run == DryRun::kRanks ||
                      request.dry_run == DryRun::kJson;
  if (job.run_dir.empty() && prints)
    job.run_dir = fmt::format("runs/{}-<time>", job.plan->job.name);
  if (request.resume == kResumeIfAny && (prints || request.dry_run == DryRun::kNo)) {
    job.goes_on_if_any = true;
    job.request.resume = run::RunFolder(job.run_dir).checkpoint().empty() ? "" : "latest";
  }
  return job;
}

int launch(PreparedJob prepared) {
  // Before the checks: they would call the folder of another one full.
  if (!prepared.run_dir.empty()) {
    run::RunLock::await_end(prepared.run_dir);
    const std::string in_use = run::RunLock::why_not(prepared.run_dir);
    if (!in_use.empty()) throw ConfigError(in_use);
  }
  // A program that cannot be executed says so itself; a plan is checked before it costs anything.
  if (prepared.plan) {
    for (const Check& check : checks_of(prepared)) {
      if (!check.ok) throw ConfigError(check.text);
    }
  }
  hosts::parse_rank_list(prepared.request.output.shown_ranks, prepared.world_size);
  const bool reads_terminal =
      !hosts::parse_rank_list(prepared.request.input_ranks, prepared.world_size).empty() &&
      isatty(STDIN_FILENO) == 1;
  agent::files_to_push(prepared.request.hosts.push);  // what cannot be sent is an error now
  check_metrics_file(prepared.request.watch.metrics_file);
  if (const std::string& report = prepared.request.report_json; !report.empty()) {
    files::refuse_output(report, files::FileKind::kJson);
    files::write_text_file(report, "", report);
  }
  std::optional<run::RunFolder> folder;
  if (prepared.plan || !prepared.run_dir.empty()) folder = folder_for(prepared);
  if (prepared.plan) {
    if (prepared.run_dir.empty())
      prepared.run_dir = std::filesystem::relative(folder->path()).string();
    if (!prepared.request.resume.empty() && resume_point(prepared).is_complete) {
      std::fprintf(stderr, "smp-launch: %s\n", complete_text(prepared).c_str());
      return static_cast<int>(ExitCode::kOk);
    }
    folder->lay_plan(prepared.request.plan);
  }
  if (folder && !folder->note().empty())
    std::fprintf(stderr, "smp-launch: %s\n", folder->note().c_str());
  const environment::ReservedPort port;
  if (prepared.plan) process::hold_signals(prepared.request.watch.checkpoint_signals);
  return process::run_guarded(
      [&](int control_fd) {
        return run_job(prepared, folder ? &*folder : nullptr, port, control_fd);
      },
      -1, reads_terminal,
      [&] {
        if (prepared.plan) std::fputs(go_on_text(prepared, *folder, true).c_str(), stderr);
      });
}

}  // namespace smp
