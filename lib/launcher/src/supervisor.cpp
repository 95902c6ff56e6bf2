#include "smp/launcher/supervisor.h"

#include <errno.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <system_error>

#include "smp/launcher/console.h"
#include "smp/launcher/error_file.h"
#include "smp/launcher/output.h"
#include "smp/launcher/report.h"
#include "smp/plan/exit_code.h"

namespace smp {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr size_t kQuotedLines = 20;
constexpr milliseconds kUnkillable{10'000};  // SIGKILL has no effect inside a hung system call
constexpr milliseconds kWhileHeld{5};        // how often to look whether the console has room
constexpr milliseconds kWhileUnheard{50};    // ... whether a host has spoken again

// Where the bytes of one rank go.
struct RankOutput {
  RankOutput(int rank, bool is_shown, bool live)
      : shown(is_shown), out(fmt::format("[{}] ", rank), live), err(fmt::format("[{}] ", rank)) {}
  bool shown;
  LineSplitter out, err;
  Tail err_tail;
  std::unique_ptr<LogFile> out_log, err_log;
};

class Supervisor : public HostEvents {
 public:
  Supervisor(const Job& job, Host& host, Console& console, int control_fd)
      : job_(job), host_(host), console_(console), control_fd_(control_fd) {}

  JobResult run();

  void on_output(int rank, Stream stream, std::string_view bytes) override;
  void on_ended(int rank, const ProcessEnd& end) override;
  void on_stopped(int rank, bool stopped) override { result_.ranks[rank].stopped = stopped; }
  void on_start_failed(int rank, const std::string& why) override;
  void on_lost(int rank, const std::string& why) override;

 private:
  enum class Phase { kRunning, kSettling, kEnding, kKilling };

  void start_ranks();
  void loop();
  void read_control();
  void on_signal(int number);
  void check_clock(Clock::time_point now);
  void decide();
  void begin_ending(JobEnd end, int signal);
  void kill_ranks();
  void signal_ranks(int number, SignalScope scope);
  milliseconds time_to_next(Clock::time_point now) const;
  milliseconds since(Clock::time_point start) const {
    return std::chrono::duration_cast<milliseconds>(Clock::now() - start);
  }
  void note_end(int rank, const ProcessEnd& end);
  Clock::time_point settled_at(Clock::time_point now) const;
  void launcher_failed(const std::string& text);
  void set_exit_code();
  bool ending() const { return phase_ == Phase::kEnding || phase_ == Phase::kKilling; }

  const Job& job_;
  Host& host_;
  Console& console_;
  int control_fd_;
  JobResult result_;
  std::vector<RankOutput> outputs_;
  Phase phase_ = Phase::kRunning;
  int alive_ = 0;
  int ended_count_ = 0;
  bool saved_on_request_ = false;
  bool finished_ = false;  // give up waiting for those that are still alive
  Clock::time_point started_, first_failure_, ending_since_, killing_since_;
  std::string lines_;  // reused by on_output
};

JobResult Supervisor::run() {
  started_ = Clock::now();
  result_.ranks.resize(job_.commands.size());
  try {
    start_ranks();
  } catch (const std::exception& error) {
    launcher_failed(error.what());
  }
  loop();
  result_.left_behind = host_.finish(*this);
  if (ending()) result_.ending = since(ending_since_);
  result_.elapsed = since(started_);
  for (RankOutput& output : outputs_) {
    if (!output.shown) continue;
    std::string out, err;
    output.out.flush(out);
    output.err.flush(err);
    console_.write(Stream::kOut, out);
    console_.write(Stream::kErr, err);
  }
  if (result_.cause)
    result_.last_lines = outputs_[result_.cause->rank].err_tail.last_lines(kQuotedLines);
  if (saved_on_request_ && result_.end == JobEnd::kSuccess) result_.end = JobEnd::kCheckpointed;
  set_exit_code();
  return std::move(result_);
}

void Supervisor::start_ranks() {
  const int count = static_cast<int>(job_.commands.size());
  for (int rank = 0; rank < count; ++rank) {
    outputs_.emplace_back(rank, job_.shown_ranks.count(rank) != 0, job_.live_console);
    if (job_.files[rank].out_log.empty()) continue;
    outputs_.back().out_log = std::make_unique<LogFile>(job_.files[rank].out_log);
    outputs_.back().err_log = std::make_unique<LogFile>(job_.files[rank].err_log);
  }
  for (int rank = 0; rank < count; ++rank) {
    try {
      host_.start(rank, job_.commands[rank]);
    } catch (const StartError& error) {
      throw StartError(fmt::format("{}: {}", text_of_rank(job_, rank), error.what()));
    }
    ++alive_;
  }
}

void Supervisor::loop() {
  while (alive_ > 0 && !finished_) {
    const bool hold = console_.full() && !console_.stalled();
    host_.hold_output(hold);
    milliseconds wait = time_to_next(Clock::now());
    if (hold) wait = wait.count() < 0 ? kWhileHeld : std::min(wait, kWhileHeld);
    pollfd ready[2] = {{host_.event_fd(), POLLIN, 0}, {control_fd_, POLLIN, 0}};
    poll(ready, 2, static_cast<int>(std::min<int64_t>(wait.count(), 1'000'000)));
    if (ready[1].revents != 0) read_control();
    if (ready[0].revents != 0) host_.dispatch(*this);
    check_clock(Clock::now());
  }
  host_.hold_output(false);
}

void Supervisor::on_output(int rank, Stream stream, std::string_view bytes) {
  RankOutput& output = outputs_[rank];
  const bool is_err = stream == Stream::kErr;
  if (is_err) output.err_tail.feed(bytes);
  std::unique_ptr<LogFile>& log = is_err ? output.err_log : output.out_log;
  if (log != nullptr) {
    try {
      log->write(bytes);
    } catch (const std::system_error& error) {
      log.reset();  // one message is enough
      launcher_failed(error.what());
    }
  }
  if (!output.shown) return;
  lines_.clear();
  (is_err ? output.err : output.out).feed(bytes, Clock::now(), lines_);
  console_.write(stream, lines_);
}

void Supervisor::on_start_failed(int rank, const std::string& why) {
  --alive_;
  launcher_failed(fmt::format("{}: {}", text_of_rank(job_, rank), why));
}

void Supervisor::on_lost(int rank, const std::string& why) {
  result_.ranks[rank].lost = why;
  note_end(rank, {});
}

void Supervisor::on_ended(int rank, const ProcessEnd& end) { note_end(rank, end); }

void Supervisor::note_end(int rank, const ProcessEnd& end) {
  RankState& state = result_.ranks[rank];
  state.ended = true;
  state.end = end;
  state.ended_by_launcher = ending();
  state.stopped = false;
  state.order = ended_count_++;
  state.after = since(started_);
  --alive_;
  if (job_.saves_on_request && end.code() == static_cast<int>(ExitCode::kCheckpointedOnRequest)) {
    state.end.exit_code = 0;
    saved_on_request_ = true;
  }
  state.error = parse_last_words(end.last_words, rank, static_cast<int>(result_.ranks.size()));
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
  const bool ends = number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT;
  if (!ends) {
    signal_ranks(number, SignalScope::kProcess);
  } else if (phase_ == Phase::kRunning) {
    result_.interrupted_by = number;
    begin_ending(JobEnd::kInterrupted, number);
  } else if (phase_ == Phase::kSettling) {
    decide();
  } else if (phase_ == Phase::kEnding) {
    kill_ranks();
  }
}

milliseconds Supervisor::time_to_next(Clock::time_point now) const {
  std::optional<Clock::time_point> next;
  if (phase_ == Phase::kRunning && job_.timeout) next = started_ + *job_.timeout;
  if (phase_ == Phase::kSettling) next = settled_at(now);
  if (phase_ == Phase::kEnding) next = ending_since_ + job_.grace;
  if (phase_ == Phase::kKilling) next = killing_since_ + kUnkillable;
  if (!next) return milliseconds(-1);
  return std::max(std::chrono::ceil<milliseconds>(*next - now), milliseconds(0));
}

// The host of a rank that is blamed, and has not ended, may have gone with it: to hear from the
// host after the failure, or of its loss, tells.
Clock::time_point Supervisor::settled_at(Clock::time_point now) const {
  const Cause cause = *find_cause(result_.ranks);
  const auto settled = first_failure_ + cause.worth_waiting;
  if (!cause.alive || host_.heard_since(cause.rank, first_failure_)) return settled;
  return std::max(settled, now + kWhileUnheard);
}

void Supervisor::check_clock(Clock::time_point now) {
  if (phase_ == Phase::kRunning && alive_ == 0) return;
  if (phase_ == Phase::kSettling && alive_ == 0) return decide();
  if (time_to_next(now).count() != 0) return;
  if (phase_ == Phase::kRunning) {
    result_.timeout = *job_.timeout;
    begin_ending(JobEnd::kTimeout, SIGTERM);
  } else if (phase_ == Phase::kSettling) {
    decide();
  } else if (phase_ == Phase::kEnding) {
    kill_ranks();
  } else {
    finished_ = true;
  }
}

void Supervisor::decide() {
  result_.cause = find_cause(result_.ranks);
  begin_ending(JobEnd::kRankFailed, SIGTERM);
}

void Supervisor::begin_ending(JobEnd end, int signal) {
  result_.end = end;
  phase_ = Phase::kEnding;
  ending_since_ = Clock::now();
  signal_ranks(signal, SignalScope::kGroup);
  signal_ranks(SIGCONT, SignalScope::kGroup);
}

void Supervisor::kill_ranks() {
  phase_ = Phase::kKilling;
  killing_since_ = Clock::now();
  signal_ranks(SIGKILL, SignalScope::kGroup);
}

void Supervisor::signal_ranks(int number, SignalScope scope) {
  for (size_t rank = 0; rank < result_.ranks.size(); ++rank) {
    if (!result_.ranks[rank].ended) host_.signal(static_cast<int>(rank), number, scope);
  }
}

void Supervisor::launcher_failed(const std::string& text) {
  if (result_.launcher_error.empty()) result_.launcher_error = text;
  if (!ending()) begin_ending(JobEnd::kLauncherError, SIGTERM);
}

void Supervisor::set_exit_code() {
  switch (result_.end) {
    case JobEnd::kSuccess: result_.exit_code = static_cast<int>(ExitCode::kOk); break;
    case JobEnd::kRankFailed: {
      const RankState& witness = result_.ranks[result_.cause->witness];
      result_.exit_code =
          witness.lost.empty() ? witness.end.code() : static_cast<int>(ExitCode::kLauncherError);
      break;
    }
    case JobEnd::kTimeout: result_.exit_code = static_cast<int>(ExitCode::kTimeout); break;
    case JobEnd::kLauncherError:
      result_.exit_code = static_cast<int>(ExitCode::kLauncherError);
      break;
    case JobEnd::kCheckpointed:
      result_.exit_code = static_cast<int>(ExitCode::kCheckpointedOnRequest);
      break;
    case JobEnd::kInterrupted: result_.exit_code = 128 + result_.interrupted_by; break;
  }
}

}  // namespace

JobResult supervise(const Job& job, Host& host, Console& console, int control_fd) {
  return Supervisor(job, host, console, control_fd).run();
}

}  // namespace smp
