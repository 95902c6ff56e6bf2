#include "smp/launcher/launch/launch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <system_error>

#include "run_job.h"
#include "smp/launcher/agent/file_distribution.h"
#include "smp/launcher/environment/rank_environment.h"
#include "smp/launcher/hosts/rank_list.h"
#include "smp/launcher/launch/resume_command.h"
#include "smp/launcher/process/watchdog.h"
#include "smp/launcher/run/run_folder.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/base/exit_code.h"
#include "smp/plan/files/text_file.h"

namespace smp::launch {
namespace {

// The run folder, locked, in the state that the checks found.
run::RunFolder folder_for(const request::PreparedJob& job) {
  if (job.run_dir.empty()) return run::RunFolder::create_for(job.plan->job.name);
  if (!job.goes_on_if_any)
    return job.request.resume.empty() ? run::RunFolder::create(job.run_dir)
                                      : run::RunFolder::reopen(job.run_dir);
  run::RunFolder folder = run::RunFolder::go_on(job.run_dir);
  if (folder.checkpoint().empty() != job.request.resume.empty())
    throw ConfigError(fmt::format(
        "run folder '{}': another smp-launch has used this folder in the meantime: start again",
        job.run_dir));
  return folder;
}

// The metrics file is rewritten all the time the ranks run, so it has to be a plain file.
void check_metrics_file(const std::string& path) {
  files::refuse_output(path, files::FileKind::kMetrics);
  std::error_code none;
  const auto status = std::filesystem::status(path, none);
  if (!std::filesystem::exists(status) || std::filesystem::is_regular_file(status)) return;
  throw ConfigError(fmt::format(
      "--prometheus: '{}' is not a regular file: give a regular file or a new name", path));
}

}  // namespace

int launch(request::PreparedJob prepared, const PlanChecks& checks) {
  // The lock comes before the checks, which would call a folder in use full.
  if (!prepared.run_dir.empty()) {
    run::RunLock::await_end(prepared.run_dir);
    const std::string in_use = run::RunLock::why_not(prepared.run_dir);
    if (!in_use.empty()) throw ConfigError(in_use);
  }
  // A program that cannot be executed says so itself; a plan is checked before it costs anything.
  if (prepared.plan) checks.require(prepared);
  hosts::parse_rank_list(prepared.request.output.shown_ranks, prepared.world_size);
  const bool reads_terminal =
      !hosts::parse_rank_list(prepared.request.input_ranks, prepared.world_size).empty() &&
      isatty(STDIN_FILENO) == 1;
  agent::files_to_send(prepared.request.hosts.push);  // what cannot be sent is an error now
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
    if (!prepared.request.resume.empty() && checks.is_complete(prepared)) {
      std::fprintf(stderr, "smp-launch: %s\n", complete_text(prepared).c_str());
      return static_cast<int>(ExitCode::kOk);
    }
    folder->lay_plan(prepared.request.plan);
  }
  if (folder && !folder->note().empty())
    std::fprintf(stderr, "smp-launch: %s\n", folder->note().c_str());
  const environment::ReservedPort port;
  if (prepared.plan) process::hold_signals(prepared.request.watch.rules.checkpoint_signals);
  return process::run_with_watchdog(
      [&](int control_fd) {
        return run_job(prepared, folder ? &*folder : nullptr, port, control_fd);
      },
      -1, reads_terminal,
      [&] {
        if (prepared.plan) std::fputs(go_on_text(prepared, *folder, true).c_str(), stderr);
      });
}

}  // namespace smp::launch
