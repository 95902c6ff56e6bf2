#include "run_job.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "make_launch_job.h"
#include "reach_hosts.h"
#include "smp/launcher/environment/rank_environment.h"
#include "smp/launcher/launch/resume_command.h"
#include "smp/launcher/output/console.h"
#include "smp/launcher/process/output.h"
#include "smp/launcher/process/plain_file.h"
#include "smp/launcher/process/watchdog.h"
#include "smp/launcher/request/spares.h"
#include "smp/launcher/run/run_folder.h"
#include "smp/launcher/run/run_summary.h"
#include "smp/launcher/run/status_board.h"
#include "smp/launcher/schedulers/scheduler.h"
#include "smp/launcher/supervision/report.h"
#include "smp/launcher/supervision/restart.h"
#include "smp/launcher/supervision/supervisor.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/base/exit_code.h"
#include "smp/plan/files/text_file.h"
#include "smp/plan/text/printable.h"

namespace smp::launch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::chrono::seconds kForReader{2};  // of the console, where logs have it all

std::string summary_or_why_not(const Plan& plan, const std::string& run_dir) {
  try {
    return run::run_summary(plan, run_dir);
  } catch (const ConfigError& error) {
    return fmt::format("smp-launch: {}\n", error.what());
  }
}

void tell_sagemaker(const std::string& text, output::Console& console) {
  try {
    schedulers::report_failure_to_sagemaker(text);
  } catch (const ConfigError& error) {
    console.say(fmt::format("smp-launch: {}\n", error.what()));
  }
}

std::string text_of_bindings(const job::LaunchJob& job, const std::vector<std::string>& next_to) {
  std::string text;
  for (size_t rank = 0; rank < job.commands.size(); ++rank)
    text += fmt::format("smp-launch: {} runs on CPUs {}{}{}\n",
                        supervision::text_of_rank(job, static_cast<int>(rank)),
                        local::text_of_cpus(job.commands[rank].cpus),
                        next_to[rank].empty() ? "" : ", next to ", next_to[rank]);
  return text;
}

// Runs one job with all its restarts.
class Run {
 public:
  Run(const request::PreparedJob& prepared, const run::RunFolder* folder,
      const environment::ReservedPort& port, int control_fd)
      : prepared_(prepared), folder_(folder), port_(port), control_fd_(control_fd) {}

  int run();

 private:
  void start(const StartAttempt& attempt);
  bool wait(const supervision::RestartDecision& decision);
  job::JobResult without_ranks(job::JobResult result) const;
  StartAttempt next_attempt() const;
  void wait_for_reader();
  int report();
  run::BoardPlaces places();
  void tell_trouble();
  void tell_notes();
  void begin_ranks(const StartAttempt& attempt, const ReachedHosts& hosts);
  std::string how_to_go_on() const;

  request::PreparedJob prepared_;  // its hosts change when one is replaced
  const run::RunFolder* folder_;
  const environment::ReservedPort& port_;
  int control_fd_;
  output::Console console_{STDOUT_FILENO, STDERR_FILENO};
  Clock::time_point began_ = Clock::now();
  std::string latest_before_;  // checkpoint, as this job found it
  std::vector<supervision::Start> starts_;
  job::LaunchJob job_;
  job::JobResult result_;
  std::optional<run::StatusBoard> board_;  // from the first start of ranks on
};

// On a terminal the last line is the status of a plan's job. A program has none, since its ranks
// may rewrite the last line themselves.
run::BoardPlaces Run::places() {
  run::BoardPlaces places;
  if (folder_ != nullptr) {
    places.status_file = folder_->status();
    places.events_file = folder_->events();
    if (prepared_.request.watch.samples_usage) places.usage_file = folder_->usage();
  }
  places.metrics_file = prepared_.request.watch.metrics_file;
  places.columns = console_columns;  // it may be made wider or narrower meanwhile
  if (prepared_.plan && console_columns() > 0)
    places.show_line = [this](const std::string& line) {
      console_.write(job::Stream::kOut, std::string(process::kEraseLine) + text::printable(line));
    };
  return places;
}

void Run::tell_trouble() {
  if (!board_) return;
  if (const std::string trouble = board_->take_trouble(); !trouble.empty())
    console_.say(fmt::format("smp-launch: {}\n", trouble));
}

// The notes come first, because they help most when the hosts do not answer.
void Run::tell_notes() {
  for (const std::string& note : prepared_.request.hosts.notes)
    console_.say(fmt::format("smp-launch: {}\n", note));
  if (!prepared_.host_order.empty())
    console_.say(fmt::format("smp-launch: {}\n", prepared_.host_order));
}

int Run::run() {
  if (prepared_.plan && folder_ != nullptr) latest_before_ = folder_->checkpoint();
  StartAttempt attempt;
  attempt.resume = prepared_.request.resume;
  attempt.timeout = prepared_.request.timeout;
  const supervision::RestartRules& rules = prepared_.request.watch.restarts;
  while (true) {
    start(attempt);
    supervision::RestartDecision decision =
        supervision::decide_restart(rules, starts_, prepared_.plan.has_value());
    if (decision.again && result_.end_signal != 0) {
      decision.again = false;
      decision.why_not =
          fmt::format("{} asked the job to end", process::signal_name(result_.end_signal));
    }
    if (!decision.again) {
      if (!decision.why_not.empty())
        console_.say(fmt::format("smp-launch: no restart: {}\n", decision.why_not));
      return report();
    }
    console_.say(supervision::report_text(job_, result_));
    for (const std::string& line : replace_lost_hosts(prepared_, job_, result_))
      console_.say(fmt::format("smp-launch: {}\n", line));
    if (board_) board_->set_state("waiting");
    if (!wait(decision)) return report();
    try {
      attempt = next_attempt();
    } catch (const ConfigError& error) {  // what ended the last start stays the cause
      console_.say(fmt::format("smp-launch: no restart: {}\n", error.what()));
      return report();
    }
    console_.say(fmt::format("smp-launch: restart {} of {}, from {}\n", attempt.restarts,
                             rules.most, attempt.from.empty() ? "the beginning" : attempt.from));
  }
}

void Run::start(const StartAttempt& attempt) {
  if (board_) board_->set_state("starting");
  if (attempt.restarts == 0) tell_notes();
  auto reached = reach_hosts(prepared_, port_, control_fd_);
  if (const job::JobResult* ended = std::get_if<job::JobResult>(&reached)) {
    result_ = without_ranks(*ended);
  } else {
    begin_ranks(attempt, std::get<ReachedHosts>(reached));
  }
  if (const std::string cause = supervision::one_line_cause(job_, result_);
      board_ && !cause.empty())
    board_->on_event({"failed", {}, cause});
  tell_trouble();
  starts_.push_back(supervision::start_of(job_, result_, attempt.from));
}

// Starts the ranks on the reached hosts. This is the first change to the run's folder.
void Run::begin_ranks(const StartAttempt& attempt, const ReachedHosts& hosts) {
  try {
    if (folder_ != nullptr) folder_->begin_start();
  } catch (const ConfigError& error) {
    result_ = {};
    result_.end = job::JobEnd::kLauncherError;
    result_.launcher_error = error.what();
    result_.exit_code = static_cast<int>(ExitCode::kLauncherError);
    return;
  }
  if (!board_) board_.emplace(places(), prepared_.request.watch.restarts.most);
  job_ = make_launch_job(prepared_, folder_, hosts, attempt);
  for (const std::string& warning : hosts.warnings)
    console_.say(fmt::format("smp-launch: warning: {}\n", warning));
  if (prepared_.request.report_bindings) console_.say(text_of_bindings(job_, hosts.next_to));
  if (prepared_.plan && attempt.restarts == 0)
    console_.say(fmt::format("smp-launch: {} rank{} on {}, run folder {}\n", job_.commands.size(),
                             job_.commands.size() == 1 ? "" : "s", hosts.host->name(),
                             prepared_.run_dir));
  port_.lend(!prepared_.plan);  // ranks of a plan on one host meet elsewhere
  board_->begin_start(job_.id, attempt.restarts + 1, prepared_.world_size);
  result_ = supervision::supervise(job_, *hosts.host, console_, control_fd_, &*board_);
  port_.lend(false);
  if (result_.end == job::JobEnd::kTimeout) result_.timeout = *prepared_.request.timeout;
}

// Handles a signal that asked for a checkpoint while no rank ran. The last saved checkpoint counts.
// Before the first start there is nothing to save.
job::JobResult Run::without_ranks(job::JobResult result) const {
  const bool asked = result.end == job::JobEnd::kInterrupted &&
                     ending_signals(prepared_).count(result.interrupted_by) != 0;
  const bool has_checkpoint = folder_ != nullptr && !folder_->checkpoint().empty();
  if (asked && (has_checkpoint || starts_.empty())) {
    result.end = job::JobEnd::kCheckpointed;
    result.goes_on = has_checkpoint;
    result.exit_code = static_cast<int>(ExitCode::kCheckpointedOnRequest);
  }
  return result;
}

// False if a signal, or the death of smp-launch itself, came first.
bool Run::wait(const supervision::RestartDecision& decision) {
  const Clock::time_point until = Clock::now() + decision.pause;
  pollfd control{control_fd_, POLLIN, 0};
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
    if (left.count() <= 0) return true;
    if (board_) board_->still_there();
    const auto next = std::min(left, milliseconds(1000));
    if (poll(&control, 1, static_cast<int>(next.count())) <= 0) continue;
    if (const auto number = process::asked_to_end(control_fd_, ending_signals(prepared_))) {
      result_ = without_ranks(interrupted_by(*number));
      return false;
    }
  }
}

StartAttempt Run::next_attempt() const {
  StartAttempt attempt;
  attempt.restarts = static_cast<int>(starts_.size());
  if (prepared_.plan) {
    attempt.from = folder_->checkpoint();
    // The job resumes from the checkpoint that the user chose until it has saved its own.
    if (!attempt.from.empty())
      attempt.resume = attempt.from == latest_before_ ? prepared_.request.resume : "latest";
    if (attempt.resume != "latest" && !attempt.resume.empty())
      attempt.from = fmt::format("step {}", attempt.resume);
  }
  if (const auto& timeout = prepared_.request.timeout) {
    const auto gone = std::chrono::duration_cast<milliseconds>(Clock::now() - began_);
    attempt.timeout = std::max(*timeout - gone, milliseconds(1));
  }
  return attempt;
}

// The last line for a plan's job that has not finished: the command that resumes it, or that there
// is no checkpoint to resume from. The report has Slurm's own command already.
std::string Run::how_to_go_on() const {
  const bool over = result_.end == job::JobEnd::kSuccess || !job_.requeue.empty();
  if (!prepared_.plan || folder_ == nullptr || over) return "";
  return go_on_text(prepared_, *folder_, board_.has_value());
}

// All ranks have ended, so a slow reader delays nobody. Output that no log holds waits for its
// reader, until a signal comes.
void Run::wait_for_reader() {
  const bool has_logs = job::logs_hold_output(job_);
  const auto began = Clock::now();
  pollfd control{control_fd_, POLLIN, 0};
  while (!console_.flush(milliseconds(100))) {
    if (has_logs ? Clock::now() - began > kForReader : poll(&control, 1, 0) > 0) return;
  }
  const auto loss = console_.loss();
  if (has_logs || !loss || result_.exit_code != 0) return;
  result_.end = job::JobEnd::kLauncherError;
  result_.launcher_error = fmt::format("{}, and {}", loss->text(), job::kNoLogHoldsIt);
  result_.exit_code = job::exit_code_of(result_);
}

// Standard output is written before the report.
int Run::report() {
  const std::string& path = prepared_.request.report_json;
  const bool ended_well = result_.end == job::JobEnd::kSuccess ||
                          (result_.end == job::JobEnd::kCheckpointed && !result_.ranks.empty());
  if (prepared_.plan && ended_well)
    console_.say(summary_or_why_not(*prepared_.plan, prepared_.run_dir), job::Stream::kOut);
  wait_for_reader();
  int exit_code = result_.exit_code;
  if (!path.empty()) {
    try {
      files::write_text_file(path, supervision::report_json(job_, result_, starts_));
    } catch (const ConfigError& error) {
      console_.say(fmt::format("smp-launch: {}\n", error.what()));
      if (exit_code == 0) exit_code = static_cast<int>(ExitCode::kLauncherError);
    }
  }
  if (board_) board_->end(exit_code);
  tell_trouble();
  for (size_t i = 0; i + 1 < starts_.size(); ++i)
    console_.say(fmt::format("smp-launch: {}\n", text_of(starts_[i], i + 1)));
  const std::string text = supervision::report_text(job_, result_);
  console_.say(text);
  console_.say(how_to_go_on());
  if (prepared_.request.hosts.sagemaker && exit_code != 0) tell_sagemaker(text, console_);
  return exit_code;
}

}  // namespace

int run_job(const request::PreparedJob& prepared, const run::RunFolder* folder,
            const environment::ReservedPort& port, int control_fd) {
  return Run(prepared, folder, port, control_fd).run();
}

}  // namespace smp::launch
