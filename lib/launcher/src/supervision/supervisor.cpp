#include "smp/launcher/supervision/supervisor.h"

#include <errno.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <system_error>

#include "output/input_feed.h"
#include "smp/launcher/hosts/duration.h"
#include "smp/launcher/job/job_observer.h"
#include "smp/launcher/output/console.h"
#include "smp/launcher/output/job_output.h"
#include "smp/launcher/process/error_file.h"
#include "smp/launcher/process/watchdog.h"
#include "smp/launcher/supervision/report.h"
#include "smp/plan/base/exit_code.h"
#include "supervision/checkpoint_request.h"
#include "supervision/hang_detector.h"
#include "supervision/peer_failure.h"

namespace smp::supervision {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr size_t kQuotedLines = 40;
constexpr milliseconds kUnkillable{10'000};  // SIGKILL has no effect inside a hung system call
constexpr milliseconds kWhileHeld{5};        // interval of checks for room on the console
constexpr milliseconds kWhileUnheard{50};    // ... for a message from a host

// The shorter of two waiting times; negative means without limit.
milliseconds sooner(milliseconds a, milliseconds b) { return a.count() < 0 ? b : std::min(a, b); }

milliseconds time_until(Clock::time_point time) {
  return std::max(std::chrono::ceil<milliseconds>(time - Clock::now()), milliseconds(0));
}

class Supervisor : public job::HostEvents {
 public:
  Supervisor(const job::LaunchJob& job, job::Host& host, output::Console& console, int control_fd,
             job::JobObserver* observer)
      : job_(job),
        host_(host),
        console_(console),
        control_fd_(control_fd),
        observer_(observer),
        input_(host, job.input_ranks),
        save_request_(job) {}

  job::JobResult run();

  void on_output(int rank, job::Stream stream, std::string_view bytes,
                 std::chrono::system_clock::time_point time) override;
  void on_ended(int rank, const process::ProcessEnd& end) override;
  void on_stopped(int rank, bool stopped) override;
  void on_not_permitted(int rank) override { result_.ranks[rank].not_permitted = true; }
  void on_not_ended(int count) override { result_.not_ended += count; }
  bool only_others_are_left() const;
  void on_stacks_shown(int rank) override { hang_detector_->has_shown(rank); }
  void on_start_failed(int rank, const std::string& why) override;
  void on_lost(int rank, const job::HostLoss& loss) override;
  void on_signalled(int number, const std::string& host) override;

 private:
  enum class Phase { kRunning, kSettling, kEnding, kKilling };

  void start_ranks();
  void hear_last_words(int rank);
  void loop();
  void read_control();
  void on_signal(int number);
  void save(int number, bool elsewhere);
  void check_clock(Clock::time_point now);
  void look(Clock::time_point now);
  void tell(const job::JobEvent& event) {
    if (observer_ != nullptr) observer_->on_event(event);
  }
  void decide();
  void begin_ending(job::JobEnd end, int signal);
  void kill_ranks(milliseconds after);
  void signal_ranks(int number, job::SignalScope scope);
  milliseconds time_to_next(Clock::time_point now) const;
  milliseconds since(Clock::time_point start) const {
    return std::chrono::duration_cast<milliseconds>(Clock::now() - start);
  }
  Clock::time_point settled_at(Clock::time_point now) const;
  void finish_output();
  void with_output(const std::function<void()>& act);
  void look_at_console();
  void launcher_failed(const std::string& text);
  bool ending() const { return phase_ == Phase::kEnding || phase_ == Phase::kKilling; }

  const job::LaunchJob& job_;
  job::Host& host_;
  output::Console& console_;
  int control_fd_;
  job::JobObserver* observer_;
  output::InputFeed input_;
  job::JobResult result_;
  std::optional<output::JobOutput> output_;
  std::optional<HangDetector> hang_detector_;
  Phase phase_ = Phase::kRunning;
  int alive_ = 0;
  int ended_count_ = 0;
  bool saved_on_request_ = false;
  bool told_of_loss_ = false;
  CheckpointRequest save_request_;
  bool finished_ = false;  // stop waiting for ranks that are still alive
  Clock::time_point started_, first_failure_, ending_since_, killing_since_;
};

job::JobResult Supervisor::run() {
  started_ = Clock::now();
  result_.ranks.resize(job_.commands.size());
  hang_detector_.emplace(job_, host_, console_, started_);
  try {
    start_ranks();
  } catch (const std::exception& error) {
    launcher_failed(error.what());
  }
  loop();
  result_.left_behind = host_.finish(*this);
  if (ending()) result_.ending = since(ending_since_);
  result_.elapsed = since(started_);
  finish_output();
  // finish_output() may have read the last lines of ranks that ended at the same time.
  if (result_.cause && job::failed_because_of_peer(result_.ranks[result_.cause->rank]))
    result_.cause = job::find_cause(result_.ranks);
  if (result_.cause && output_)
    result_.last_lines = output_->last_error_lines(result_.cause->rank, kQuotedLines);
  if (saved_on_request_ && result_.end == job::JobEnd::kSuccess)
    result_.end = job::JobEnd::kCheckpointed;
  if (result_.end == job::JobEnd::kRankFailed && save_request_.number() != 0)
    result_.unsaved_for = save_request_.number();
  result_.exit_code = job::exit_code_of(result_);
  return std::move(result_);
}

// Waits until the logs are complete, however slow their file system is, or until a signal.
void Supervisor::finish_output() {
  if (!output_) return;
  output_->flush();
  while (!output_->wait_for_logs(kWhileUnheard)) {
    pollfd control{control_fd_, POLLIN, 0};
    if (poll(&control, 1, 0) > 0 && process::asked_to_end(control_fd_, {})) {
      launcher_failed("the logs are incomplete: their file system does not answer");
      break;
    }
  }
  with_output([&] { output_->check_logs(); });
}

void Supervisor::start_ranks() {
  const int count = static_cast<int>(job_.commands.size());
  output_.emplace(job_, console_);
  for (int rank = 0; rank < count; ++rank) {
    try {
      host_.start(rank, job_.commands[rank]);
    } catch (const job::StartError& error) {
      throw job::StartError(fmt::format("{}: {}", text_of_rank(job_, rank), error.what()));
    }
    ++alive_;
  }
}

void Supervisor::loop() {
  while (alive_ > 0 && !finished_) {
    const bool hold = (console_.full() && !console_.stalled()) || (output_ && output_->is_full());
    host_.hold_output(hold);
    milliseconds wait = time_to_next(Clock::now());
    if (hold) wait = sooner(wait, kWhileHeld);
    wait = sooner(wait, time_until(hang_detector_->next_look()));
    if (output_ && output_->due()) wait = sooner(wait, time_until(*output_->due()));
    pollfd ready[3] = {{host_.event_fd(), POLLIN, 0},
                       {control_fd_, POLLIN, 0},
                       {ending() ? -1 : input_.wanted(), POLLIN, 0}};
    poll(ready, 3, static_cast<int>(std::min<int64_t>(wait.count(), 1'000'000)));
    // Events up to now are handled before the time limits are checked, so that a stop of this
    // process does not count against the ranks.
    const Clock::time_point now = Clock::now();
    if (ready[1].revents != 0) read_control();
    host_.dispatch(*this);
    if (ready[2].revents != 0) input_.read_some();
    with_output([&] {
      output_->release(now);
      output_->check_logs();
    });
    look_at_console();
    if (now >= hang_detector_->next_look()) look(now);
    check_clock(now);
  }
  host_.hold_output(false);
}

void Supervisor::on_output(int rank, job::Stream stream, std::string_view bytes,
                           std::chrono::system_clock::time_point time) {
  hang_detector_->wrote(rank, Clock::now());
  if (output_) output_->take(rank, stream, bytes, time);
  if (stream == job::Stream::kErr && result_.ranks[rank].ended) hear_last_words(rank);
}

// The last lines of a rank may arrive after its end.
void Supervisor::hear_last_words(int rank) {
  job::RankState& state = result_.ranks[rank];
  if (!state.failed_by_itself() || !output_) return;
  state.reports_peer_failure =
      state.error ? state.error->kind == process::RankErrorKind::kOwn &&
                        reports_peer_failure({state.error->message})
                  : reports_peer_failure(output_->last_error_lines(rank, kQuotedLines));
}

// A log that cannot be written ends the job.
void Supervisor::with_output(const std::function<void()>& act) {
  try {
    if (output_) act();
  } catch (const std::system_error& error) {
    launcher_failed(error.what());
  }
}

// Ends a job whose output has neither a log nor a reader. A full disk is only reported, because the
// ranks can still do their work.
void Supervisor::look_at_console() {
  if (told_of_loss_) return;
  const auto loss = console_.loss();
  if (!loss) return;
  told_of_loss_ = true;
  if (!job::logs_hold_output(job_) && loss->reader_has_gone())
    return launcher_failed(fmt::format("{}, and {}", loss->text(), job::kNoLogHoldsIt));
  console_.say(fmt::format(
      "smp-launch: {}; {}\n", loss->text(),
      job::logs_hold_output(job_) ? "the logs hold the output of the ranks" : job::kNoLogHoldsIt));
}

void Supervisor::on_start_failed(int rank, const std::string& why) {
  --alive_;
  hang_detector_->ended(rank, Clock::now());
  launcher_failed(fmt::format("{}: {}", text_of_rank(job_, rank), why));
}

void Supervisor::on_lost(int rank, const job::HostLoss& loss) {
  result_.ranks[rank].lost = loss.why;
  result_.ranks[rank].lost_through_other = loss.through_other;
  result_.ranks[rank].transport_lost = loss.of_transport;
  on_ended(rank, {});
}

void Supervisor::on_stopped(int rank, bool stopped) {
  result_.ranks[rank].stopped = stopped;
  tell({stopped ? "rank_stopped" : "rank_continued", rank, stopped ? "was stopped" : "goes on"});
}

void Supervisor::on_ended(int rank, const process::ProcessEnd& end) {
  job::RankState& state = result_.ranks[rank];
  state.ended = true;
  state.end = end;
  state.ended_by_launcher = ending();
  state.stopped = false;
  state.order = ended_count_++;
  state.after = since(started_);
  state.progress = host_.progress(rank);
  hang_detector_->ended(rank, Clock::now());
  input_.forget(rank);
  --alive_;
  if (job_.saves_on_request && end.code() == static_cast<int>(ExitCode::kCheckpointedOnRequest)) {
    state.end.exit_code = 0;
    saved_on_request_ = true;
  }
  tell({state.lost.empty() ? "rank_ended" : "rank_lost", rank,
        state.lost.empty() ? text_of(end) : "was " + text_of_loss(state)});
  state.error =
      process::parse_last_words(end.last_words, rank, static_cast<int>(result_.ranks.size()));
  hear_last_words(rank);
  // The rank to blame has reported its own reason after the waiting time.
  if (ending() && result_.cause && result_.cause->rank == rank && end.exit_code != 0 &&
      state.error && !state.error->blames_another()) {
    state.ended_by_launcher = false;
    result_.cause = job::find_cause(result_.ranks);
  }
  if (state.failed_by_itself() && phase_ == Phase::kRunning) {
    phase_ = Phase::kSettling;
    first_failure_ = Clock::now();
  }
}

void Supervisor::read_control() {
  unsigned char numbers[16];
  const ssize_t size = read(control_fd_, numbers, sizeof numbers);
  if (size < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (size <= 0) {
    control_fd_ = -1;
    launcher_failed("smp-launch itself was killed");
    finished_ = true;  // host_.finish() kills
    return;
  }
  for (ssize_t i = 0; i < size; ++i) on_signal(numbers[i]);
}

void Supervisor::on_signal(int number) {
  tell({"signal", {}, process::signal_name(number)});
  const bool ends = number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT;
  const bool saves = save_request_.is_made_by(number);
  if (ends || saves) result_.end_signal = number;
  const bool is_second = save_request_.is_followed_by(number);
  if (saves && save_request_.number() == 0 && phase_ != Phase::kRunning)
    result_.unsaved_for = number;
  if (saves && phase_ == Phase::kRunning && !is_second) {
    save(number, false);
  } else if (!ends) {
    signal_ranks(number, number == SIGCONT ? job::SignalScope::kGroup : job::SignalScope::kProcess);
  } else if (phase_ == Phase::kRunning) {
    result_.interrupted_by = number;
    begin_ending(job::JobEnd::kInterrupted, number);
  } else if (phase_ == Phase::kSettling) {
    decide();
  } else if (phase_ == Phase::kEnding) {
    kill_ranks(since(ending_since_));
  }
}

void Supervisor::on_signalled(int number, const std::string& host) {
  tell({"signal", {}, fmt::format("{} on host {}", process::signal_name(number), host)});
  if (save_request_.is_made_by(number) && phase_ == Phase::kRunning) save(number, true);
}

void Supervisor::save(int number, bool elsewhere) {
  if (save_request_.number() != 0) return;
  save_request_.make(number, elsewhere);
  result_.end_signal = number;
  signal_ranks(SIGUSR1, job::SignalScope::kProcess);
}

milliseconds Supervisor::time_to_next(Clock::time_point now) const {
  std::optional<Clock::time_point> next;
  if (phase_ == Phase::kRunning && job_.timeout) next = started_ + *job_.timeout;
  if (const auto save_ends = save_request_.ends_at(); save_ends && phase_ == Phase::kRunning)
    next = std::min(next.value_or(*save_ends), *save_ends);
  if (phase_ == Phase::kSettling) next = settled_at(now);
  if (phase_ == Phase::kEnding) next = ending_since_ + job_.rules.grace;
  if (phase_ == Phase::kKilling) next = killing_since_ + kUnkillable;
  if (!next) return milliseconds(-1);
  return std::max(std::chrono::ceil<milliseconds>(*next - now), milliseconds(0));
}

// A rank that is blamed and has not ended may be lost with its host. The supervisor therefore waits
// for a message from that host, or for its loss.
Clock::time_point Supervisor::settled_at(Clock::time_point now) const {
  const job::Cause cause = *job::find_cause(result_.ranks);
  const auto settled = first_failure_ + cause.worth_waiting;
  if (!cause.alive || host_.heard_since(cause.rank, first_failure_)) return settled;
  return std::max(settled, now + kWhileUnheard);
}

void Supervisor::check_clock(Clock::time_point now) {
  if (phase_ == Phase::kRunning && alive_ == 0) return;
  if (phase_ == Phase::kSettling && alive_ == 0) return decide();
  if (phase_ == Phase::kKilling && only_others_are_left()) finished_ = true;
  if (time_to_next(now).count() != 0) return;
  const auto save_ends = save_request_.ends_at();
  if (phase_ == Phase::kRunning && save_ends && now >= *save_ends) {
    result_.interrupted_by = save_request_.number();
    begin_ending(job::JobEnd::kInterrupted, SIGTERM);
  } else if (phase_ == Phase::kRunning) {
    result_.timeout = *job_.timeout;
    begin_ending(job::JobEnd::kTimeout, SIGTERM);
  } else if (phase_ == Phase::kSettling) {
    decide();
  } else if (phase_ == Phase::kEnding) {
    kill_ranks(job_.rules.grace);
  } else {
    finished_ = true;
  }
}

// True if all living ranks belong to another user now, so that no signal reaches them.
bool Supervisor::only_others_are_left() const {
  return std::all_of(result_.ranks.begin(), result_.ranks.end(), [](const job::RankState& state) {
    return state.ended || state.not_permitted;
  });
}

void Supervisor::look(Clock::time_point now) {
  hang_detector_->look(result_.ranks, now, output_ && output_->is_full());
  if (observer_ != nullptr) {
    observer_->on_look(hang_detector_->view(now));
    for (const system::HostUsage& usage : host_.take_usage()) observer_->on_usage(usage);
  }
  if (phase_ != Phase::kRunning) return;
  result_.hang = hang_detector_->ends_job(now);
  if (result_.hang) return begin_ending(job::JobEnd::kHang, SIGTERM);
  if (const auto hang = hang_detector_->found(result_.ranks, now))
    tell({"hang", {}, text_of(*hang)});
}

void Supervisor::decide() {
  result_.cause = job::find_cause(result_.ranks);
  begin_ending(job::JobEnd::kRankFailed, SIGTERM);
}

void Supervisor::begin_ending(job::JobEnd end, int signal) {
  result_.end = end;
  phase_ = Phase::kEnding;
  ending_since_ = Clock::now();
  signal_ranks(signal, job::SignalScope::kGroup);
  signal_ranks(SIGCONT, job::SignalScope::kGroup);
}

void Supervisor::kill_ranks(milliseconds after) {
  result_.killed_after = after;
  phase_ = Phase::kKilling;
  killing_since_ = Clock::now();
  signal_ranks(SIGKILL, job::SignalScope::kGroup);
}

void Supervisor::signal_ranks(int number, job::SignalScope scope) {
  for (size_t rank = 0; rank < result_.ranks.size(); ++rank) {
    if (!result_.ranks[rank].ended) host_.signal(static_cast<int>(rank), number, scope);
  }
}

void Supervisor::launcher_failed(const std::string& text) {
  if (result_.launcher_error.empty()) result_.launcher_error = text;
  if (!ending()) begin_ending(job::JobEnd::kLauncherError, SIGTERM);
}

}  // namespace

job::JobResult supervise(const job::LaunchJob& job, job::Host& host, output::Console& console,
                         int control_fd, job::JobObserver* observer) {
  return Supervisor(job, host, console, control_fd, observer).run();
}

}  // namespace smp::supervision
