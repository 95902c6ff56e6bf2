#include "agent_link.h"

#include <errno.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "build_id.h"
#include "smp/launcher/duration.h"

namespace smp {
namespace {

using std::chrono::milliseconds;

constexpr size_t kMostErrorText = 8 << 10;
constexpr milliseconds kForReason{500};  // from the end of the channel to that of its process

int64_t now_ms() {
  return std::chrono::duration_cast<milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string short_build(const std::string& build) {
  return build.empty() ? "unknown" : build.substr(0, 12);
}

}  // namespace

AgentLink::AgentLink(HostSpec host, Transport& transport, WelcomeMessage welcome)
    : host_(std::move(host)),
      transport_(transport),
      welcome_(std::move(welcome)),
      silence_(milliseconds(welcome_.silence_ms)) {
  Line line = transport.open(host_);
  pid_ = line.pid;
  process_ = std::move(line.process);
  errors_ = std::move(line.errors);
  channel_ = std::make_unique<FrameChannel>(std::move(line.in), std::move(line.out));
}

AgentLink::~AgentLink() {
  // The agent sees the end of its input, whatever becomes of the process that leads to it.
  channel_->close();
  if (pid_ < 0) return;
  kill(-pid_, SIGKILL);  // and what a command of several processes has started
  waitpid(pid_, nullptr, 0);
}

std::optional<RankProgress> AgentLink::progress(int process) const {
  const auto found = progress_.find(process);
  if (found == progress_.end()) return std::nullopt;
  return found->second;
}

void AgentLink::start(int process, const Command& command) {
  if (state_ != State::kReady) throw StartError(fmt::format("its host is lost: {}", why_));
  started_.insert(process);
  running_.insert(process);
  channel_->send(FrameType::kStart, encode(StartMessage{process, command}, before_));
  before_ = command;
}

void AgentLink::signal(int process, int number, SignalScope scope) {
  if (state_ != State::kReady || running_.count(process) == 0) return;
  channel_->send(FrameType::kSignal, PayloadWriter()
                                         .number(static_cast<uint64_t>(process))
                                         .number(static_cast<uint64_t>(number))
                                         .number(scope == SignalScope::kGroup ? 1 : 0)
                                         .bytes());
}

void AgentLink::hold_output(bool hold) {
  if (state_ == State::kReady)
    channel_->send(FrameType::kHold, PayloadWriter().number(hold ? 1 : 0).bytes());
}

void AgentLink::finish() {
  if (state_ == State::kReady) channel_->send(FrameType::kFinish);
}

void AgentLink::dispatch(HostEvents& events) {
  if (state_ == State::kFinished || state_ == State::kLost) return;
  channel_->flush();
  read_errors();
  if (!closed_at_) {
    try {
      const bool open = channel_->receive([&](const Frame& frame) {
        silence_.heard();
        on_frame(frame, events);
      });
      if (!open) closed_at_ = std::chrono::steady_clock::now();
    } catch (const ProtocolError& error) {
      fail(fmt::format("its agent is not to be understood: {}", error.what()));
    }
  }
  see_process_end();
  if (state_ == State::kFinished) return;
  if (!failure_.empty()) return give_up(failure_, events);
  check_clock(events);
}

void AgentLink::read_errors() {
  std::array<char, 4096> bytes;
  ssize_t size = 0;
  while (errors_.is_open() && (size = read(errors_.number(), bytes.data(), bytes.size())) > 0)
    error_text_.append(bytes.data(), static_cast<size_t>(size));
  if (errors_.is_open() && size == 0) errors_.reset();
  if (error_text_.size() > 2 * kMostErrorText)
    error_text_.erase(0, error_text_.size() - kMostErrorText);
}

void AgentLink::see_process_end() {
  if (pid_ < 0) return;
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0)
    return;
  pid_ = -1;
  ProcessEnd end;
  if (info.si_code == CLD_EXITED)
    end.exit_code = info.si_status;
  else
    end.signal = info.si_status;
  process_end_ = end;
  process_.reset();
  read_errors();
}

// What ends a link comes in two pieces, in any order: the end of the channel and that of the
// process that leads to the agent. Both are waited for, briefly, since the reason lies in the
// second.
void AgentLink::check_clock(HostEvents& events) {
  const auto now = std::chrono::steady_clock::now();
  if (closed_at_ && (process_end_ || pid_ < 0 || now - *closed_at_ > kForReason)) {
    const std::string text = error_text_.empty() ? channel_->text_before() : error_text_;
    if (state_ == State::kConnecting)
      return give_up(process_end_ ? transport_.why_not_reached(*process_end_, text)
                                  : "no agent: the command closed its output",
                     events);
    const size_t end = error_text_.find_last_not_of("\r\n ");
    const size_t begin = end == error_text_.npos ? 0 : error_text_.find_last_of("\r\n", end) + 1;
    return give_up(end == error_text_.npos
                       ? "the connection to its agent ended"
                       : fmt::format("the connection to its agent ended ({})",
                                     error_text_.substr(begin, end + 1 - begin)),
                   events);
  }
  if (!silence_.tick() || state_ != State::kReady) return;
  if (silence_.is_over())
    return give_up(fmt::format("nothing was heard from it for {}", text_of(silence_.limit())),
                   events);
  if (!channel_->wants_to_write()) channel_->send(FrameType::kAlive);
}

void AgentLink::fail(const std::string& why) {
  if (failure_.empty()) failure_ = why;
}

void AgentLink::give_up(const std::string& why, HostEvents& events) {
  if (state_ == State::kFinished || state_ == State::kLost) return;
  state_ = State::kLost;
  why_ = why;
  channel_->close();
  if (pid_ > 0) kill(-pid_, SIGKILL);
  // Nobody reads them any more, and they would wake whoever waits for something to read.
  process_.reset();
  errors_.reset();
  const std::set<int> lost = std::move(running_);
  running_.clear();
  for (int process : lost) events.on_lost(process, why_);
}

void AgentLink::on_hello(const HelloMessage& message) {
  if (message.protocol != kProtocolVersion || message.build != welcome_.build)
    return fail(
        fmt::format("another build of smp-launch is there (protocol {}, build {}; here {}, {}): "
                    "install the same on every host",
                    message.protocol, short_build(message.build), kProtocolVersion,
                    short_build(welcome_.build)));
  channel_->send(FrameType::kWelcome, encode(welcome_));
}

int AgentLink::running_process(PayloadReader& reader) const {
  const int process = reader.small_number();
  if (running_.count(process) == 0)
    throw ProtocolError("a message of a rank that does not run there");
  return process;
}

void AgentLink::on_frame(const Frame& frame, HostEvents& events) {
  PayloadReader reader(frame.payload);
  switch (frame.type) {
    case FrameType::kAlive: return;
    case FrameType::kHello: return on_hello(decode_hello(frame.payload));
    case FrameType::kRefused: return fail(std::string(reader.text()));
    case FrameType::kReady:
      about_ = decode_ready(frame.payload);
      if (about_.health) clock_skew_ms_ = about_.health->clock_ms - now_ms();
      state_ = State::kReady;
      return;
    case FrameType::kOutput: {
      const int process = reader.small_number();
      if (started_.count(process) == 0) throw ProtocolError("output of a rank that is not its own");
      const Stream stream = reader.number() != 0 ? Stream::kErr : Stream::kOut;
      const std::chrono::system_clock::time_point time(
          milliseconds(static_cast<int64_t>(reader.number())));
      return events.on_output(process, stream, reader.text(), time);
    }
    case FrameType::kEnded: {
      const int process = running_process(reader);
      running_.erase(process);
      return events.on_ended(process, decode_end(reader));
    }
    case FrameType::kStopped: {
      const int process = running_process(reader);
      return events.on_stopped(process, reader.number() != 0);
    }
    case FrameType::kStartFailed: {
      const int process = running_process(reader);
      running_.erase(process);
      return events.on_start_failed(process, std::string(reader.text()));
    }
    case FrameType::kProgress: {
      const int process = running_process(reader);
      progress_[process] = decode_progress(reader);
      return;
    }
    case FrameType::kFinished:
      left_behind_ = reader.small_number();
      state_ = State::kFinished;
      return;
    default: throw ProtocolError("a message that is not for the launcher");
  }
}

}  // namespace smp
