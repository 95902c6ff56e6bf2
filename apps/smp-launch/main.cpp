#include <signal.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>

#include "checks.h"
#include "command_line.h"
#include "doctor_options.h"
#include "option_values.h"
#include "report_run.h"
#include "show_samples.h"
#include "smp/launcher/agent/agent.h"
#include "smp/launcher/launch/build_only.h"
#include "smp/launcher/launch/check_hosts.h"
#include "smp/launcher/launch/dry_run.h"
#include "smp/launcher/launch/launch.h"
#include "smp/launcher/launch/prepare.h"
#include "smp/launcher/probe/network_probe.h"
#include "smp/launcher/process/watchdog.h"
#include "smp/launcher/request/usage_error.h"
#include "smp/launcher/run/run_status_of.h"
#include "smp/launcher/schedulers/scheduler.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/base/exit_code.h"
#include "smp/plan/system/process_limits.h"
#include "smp/plan/system/standard_streams.h"
#include "smp/plan/text/printable.h"

namespace {

// Enough for one rank with a run's folder. With more ranks the error says what is missing.
constexpr int64_t kLeastOpenFiles = 32;

// Standard output of this command.
struct Answers {
  bool are_heard = true;  // false: standard output was closed

  // Prints bytes unchanged, such as a script. A full disk or a closed pipe is a failure.
  int print(const std::string& text, smp::ExitCode code) const {
    errno = EBADF;
    if (are_heard && std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0)
      return static_cast<int>(code);
    std::perror("smp-launch: cannot write to standard output");
    return static_cast<int>(smp::ExitCode::kFailure);
  }

  // Prints text for people, with control characters escaped.
  int show(const std::string& text, smp::ExitCode code) const {
    return print(smp::text::printable(text), code);
  }
};

int say(const char* text, smp::ExitCode code) {
  std::fprintf(stderr, "smp-launch: %s\n", smp::text::printable(text).c_str());
  return static_cast<int>(code);
}

}  // namespace

int main(int argc, char** argv) {
  smp::process::hold_signals({SIGUSR1, SIGUSR2});  // they are for ranks
  const Answers answers{smp::system::fill_standard_streams()};
  try {
    smp::system::check_limits(
        {.stack_bytes = smp::system::kLeastStackBytes, .open_files = kLeastOpenFiles});
    if (argc == 2 && std::string_view(argv[1]) == "--agent") return smp::agent::run_agent();
    if (argc == 2 && std::string_view(argv[1]) == "--probe") return smp::probe::run_probe();
    if (argc == 6 && std::string_view(argv[1]) == "--agent" &&
        std::string_view(argv[2]) == "--meet" && std::string_view(argv[4]) == "--node-rank")
      return smp::schedulers::run_mpirun_agent(argv[3], smp::whole_number(argv[5]).value_or(-1));
    if (argc == 6 && std::string_view(argv[1]) == "--agent" &&
        std::string_view(argv[2]) == "--meet" && std::string_view(argv[4]) == "--connect-timeout")
      return smp::schedulers::run_srun_agent(argv[3], argv[5]);
    if (argc > 1 && std::string_view(argv[1]) == "doctor") {
      const smp::launch::Report report = smp::doctor({argv + 2, argv + argc});
      return answers.show(report.text, report.ok ? smp::ExitCode::kOk : smp::ExitCode::kFailure);
    }
    if (argc > 1 && std::string_view(argv[1]) == "report")
      return answers.show(smp::report_run({argv + 2, argv + argc}), smp::ExitCode::kOk);
    const smp::request::LaunchRequest request = smp::parse_command_line(argc, argv);
    if (!request.status_of.empty())
      return answers.show(smp::run::run_status_of(request.status_of), smp::ExitCode::kOk);
    if (request.hosts.rendezvous.node_rank > 0 && request.dry_run == smp::request::DryRun::kNo)
      return smp::launch::join_job(request);
    const smp::request::PreparedJob job = smp::launch::prepare(request);
    if (job.request.build_only) smp::launch::build_only(job);
    if (const std::string& steps = job.request.show_samples; !steps.empty()) {
      int code = static_cast<int>(smp::ExitCode::kOk);
      smp::show_samples(*job.plan, smp::step_range_of(steps), [&](const std::string& text) {
        code = answers.show(text, smp::ExitCode::kOk);
        return code == 0;
      });
      return code;
    }
    if (job.request.check) {
      const smp::launch::Report report = smp::launch::check_hosts(job);
      return answers.show(report.text, report.ok ? smp::ExitCode::kOk : smp::ExitCode::kFailure);
    }
    if (job.request.dry_run == smp::request::DryRun::kNo)
      return smp::launch::launch(job, smp::PlannerChecks());
    const smp::launch::DryRunResult result =
        smp::launch::dry_run(job, [&] { return smp::checks_of(job); });
    const smp::ExitCode code = result.ok ? smp::ExitCode::kOk : smp::ExitCode::kBadConfig;
    const bool is_to_read = job.request.dry_run == smp::request::DryRun::kText ||
                            job.request.dry_run == smp::request::DryRun::kJson;
    const int printed =
        is_to_read ? answers.show(result.text, code) : answers.print(result.text, code);
    std::fputs(smp::text::printable(result.checks).c_str(), stderr);
    return printed;
  } catch (const smp::Information& information) {
    return answers.print(information.text, smp::ExitCode::kOk);
  } catch (const smp::request::UsageError& error) {
    say(error.what(), smp::ExitCode::kUsage);
    std::fputs("See smp-launch --help.\n", stderr);
    return static_cast<int>(smp::ExitCode::kUsage);
  } catch (const smp::ConfigError& error) {
    return say(error.what(), smp::ExitCode::kBadConfig);
  } catch (const std::exception& error) {
    return say(error.what(), smp::ExitCode::kLauncherError);
  }
}
