#include "launch.h"

#include <errno.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "checks.h"
#include "smp/launcher/console.h"
#include "smp/launcher/guard.h"
#include "smp/launcher/local_host.h"
#include "smp/launcher/rank_environment.h"
#include "smp/launcher/rank_list.h"
#include "smp/launcher/report.h"
#include "smp/launcher/run_folder.h"
#include "smp/launcher/run_summary.h"
#include "smp/launcher/supervisor.h"
#include "smp/plan/environment.h"
#include "smp/plan/errors.h"
#include "smp/plan/exit_code.h"

namespace smp {
namespace {

constexpr const char* kWorker = "smp-worker";

void write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw ConfigError(fmt::format("cannot write '{}': {}", path, strerror(errno)));
}

void copy_plan(const std::string& from, const std::string& to) {
  std::error_code error;
  if (std::filesystem::equivalent(from, to, error)) return;  // resumed with the run's own plan
  error.clear();
  std::filesystem::copy_file(from, to, std::filesystem::copy_options::overwrite_existing, error);
  if (error)
    throw ConfigError(fmt::format("cannot copy '{}' to '{}': {}", from, to, error.message()));
}

// Width of the terminal that standard output is; 0 when it is none.
int console_columns() {
  winsize size{};
  if (isatty(STDOUT_FILENO) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

Job job_of(const PreparedJob& prepared, const RunFolder* folder, const ReservedPort& port) {
  JobEnvironment shared;
  shared.world_size = prepared.world_size;
  shared.master_port = port.number();
  shared.job_id = random_hex(8);
  shared.job_key = random_hex(32);
  shared.cpus = available_cpus();
  if (folder != nullptr) shared.run_dir = folder->path();
  shared.resume = prepared.request.resume;
  if (folder != nullptr && prepared.plan) shared.plan = folder->plan();

  std::vector<std::string> inherited = own_environment();
  if (prepared.request.comm_timeout)
    inherited =
        merged_environment(inherited, {comm_timeout_variable(*prepared.request.comm_timeout)});
  Job job;
  job.id = shared.job_id;
  job.shown_ranks = parse_rank_list(prepared.request.shown_ranks, prepared.world_size);
  const int columns = console_columns();
  job.live_console = columns > 0 && job.shown_ranks.size() == 1;
  for (int rank = 0; rank < prepared.world_size; ++rank) {
    job.files.push_back(folder != nullptr ? folder->files_of(rank) : RankFiles{});
    auto set = variables_of_rank(shared, rank, job.files.back().error_file, inherited);
    if (job.live_console && job.shown_ranks.count(rank) != 0)
      set.push_back(fmt::format("{}={}", env::kConsoleColumns,
                                columns - static_cast<int>(fmt::formatted_size("[{}] ", rank))));
    job.commands.push_back({prepared.command, merged_environment(inherited, set)});
  }
  job.grace = prepared.request.grace;
  job.timeout = prepared.request.timeout;
  job.saves_on_request = prepared.plan.has_value();
  return job;
}

std::string summary_or_why_not(const Plan& plan, const std::string& run_dir) {
  try {
    return run_summary(plan, run_dir);
  } catch (const ConfigError& error) {
    return fmt::format("smp-launch: {}\n", error.what());
  }
}

// The second process of run_guarded().
int supervise_job(const Job& job, const PreparedJob& prepared, int control_fd) {
  const std::string& report_path = prepared.request.report_json;
  Console console(STDOUT_FILENO, STDERR_FILENO);
  LocalHost host;
  if (prepared.plan)
    console.write(Stream::kErr, fmt::format("smp-launch: {} ranks on {}, run folder {}\n",
                                            job.commands.size(), host.name(), prepared.run_dir));
  const JobResult result = supervise(job, host, console, control_fd);
  if (prepared.plan && (result.end == JobEnd::kSuccess || result.end == JobEnd::kCheckpointed))
    console.write(Stream::kOut, summary_or_why_not(*prepared.plan, prepared.run_dir));
  console.flush(std::chrono::seconds(2));  // standard output first: the report comes last
  int exit_code = result.exit_code;
  if (!report_path.empty()) {
    try {
      write_text(report_path, report_json(job, result));
    } catch (const ConfigError& error) {
      console.write(Stream::kErr, fmt::format("smp-launch: {}\n", error.what()));
      if (exit_code == 0) exit_code = static_cast<int>(ExitCode::kLauncherError);
    }
  }
  console.write(Stream::kErr, report_text(job, result));
  return exit_code;
}

}  // namespace

std::string own_folder() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().string();
}

std::string comm_timeout_variable(std::chrono::milliseconds time) {
  return fmt::format("{}={:g}", env::kCommTimeout, static_cast<double>(time.count()) / 1000);
}

PreparedJob prepare(const LaunchRequest& request) {
  PreparedJob job;
  job.request = request;
  job.run_dir = request.run_dir;
  if (request.plan.empty()) {
    job.world_size = request.ranks;
    job.command = request.program;
    return job;
  }
  job.plan = read_plan(request.plan);
  job.world_size = static_cast<int>(job.plan->degrees.world());
  job.command = {own_folder() + "/" + kWorker};
  if (job.run_dir.empty()) job.run_dir = RunFolder::default_path(job.plan->job.name);
  return job;
}

int launch(const PreparedJob& prepared) {
  // A program that cannot be executed says so itself; a plan is checked before it costs anything.
  if (prepared.plan) {
    for (const Check& check : checks_of(prepared)) {
      if (!check.ok) throw ConfigError(check.text);
    }
  }
  parse_rank_list(prepared.request.shown_ranks, prepared.world_size);
  if (!prepared.request.report_json.empty()) write_text(prepared.request.report_json, "");
  std::optional<RunFolder> folder;
  const bool resumes = !prepared.request.resume.empty();
  if (!prepared.run_dir.empty())
    folder = resumes ? RunFolder::reopen(prepared.run_dir) : RunFolder::create(prepared.run_dir);
  if (folder && prepared.plan) copy_plan(prepared.request.plan, folder->plan());
  const ReservedPort port;
  const Job job = job_of(prepared, folder ? &*folder : nullptr, port);
  return run_guarded([&](int control_fd) { return supervise_job(job, prepared, control_fd); });
}

}  // namespace smp
