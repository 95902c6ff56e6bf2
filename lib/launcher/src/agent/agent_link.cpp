#include "agent/agent_link.h"

#include <errno.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <random>
#include <system_error>

#include "smp/launcher/hosts/duration.h"
#include "smp/plan/base/build_id.h"
#include "smp/plan/base/errors.h"

namespace smp::agent {
namespace {

using std::chrono::milliseconds;

constexpr size_t kMostErrorText = 8 << 10;
constexpr milliseconds kLongestPause{4'000};
constexpr milliseconds kForReason{
    500};  // between the end of the channel and the end of its process

int64_t now_ms() {
  return std::chrono::duration_cast<milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// The pause before the next try: half a second at first, doubled with each drop up to
// kLongestPause. The pause is random, so that links that were dropped together do not retry
// together.
milliseconds pause_after(int drops) {
  thread_local std::minstd_rand random(std::random_device{}());
  const int64_t whole = std::min<int64_t>(500 << std::min(drops - 1, 4), kLongestPause.count());
  return milliseconds(std::uniform_int_distribution<int64_t>(whole / 2, whole * 3 / 2)(random));
}

}  // namespace

AgentLink::AgentLink(hosts::HostSpec host, reach::AgentTransport& transport, WelcomeMessage welcome)
    : host_(std::move(host)),
      transport_(transport),
      welcome_(std::move(welcome)),
      places_(1 + welcome_.below.size()),
      unknown_(places_.size()),
      heartbeat_(milliseconds(welcome_.heartbeat_timeout_ms)) {
  places_[0].name = host_.name;
  for (size_t i = 1; i < places_.size(); ++i) places_[i].name = welcome_.below[i - 1].name;
  open();
}

void AgentLink::open() {
  reach::AgentStreams line;
  std::string why_not_opened;
  try {
    line = transport_.open(host_);
  } catch (const job::StartError& error) {
    why_not_opened = error.what();
  } catch (const std::system_error& error) {
    why_not_opened = error.what();
  }
  pid_ = line.pid;
  process_ = std::move(line.process);
  errors_ = std::move(line.errors);
  channel_ = std::make_unique<reach::FrameChannel>(std::move(line.in), std::move(line.out));
  if (!why_not_opened.empty()) lose({why_not_opened});
}

void AgentLink::try_later(const std::string& why) {
  dropped_ = why;
  ++drops_;
  try_at_ = std::chrono::steady_clock::now() + pause_after(drops_);
  channel_->close();
  errors_.reset();
  process_end_.reset();
  closed_at_.reset();
  error_text_.clear();
}

bool AgentLink::is_to_wait() {
  if (!try_at_) return false;
  if (std::chrono::steady_clock::now() < *try_at_) return true;
  try_at_.reset();
  open();
  return is_over();
}

AgentLink::~AgentLink() {
  // The agent sees the end of its input, even if the process that connects it does not end.
  channel_->close();
  if (pid_ < 0) return;
  kill(-pid_, SIGKILL);  // all processes of the command
  waitpid(pid_, nullptr, 0);
}

std::optional<runinfo::RankProgress> AgentLink::progress(int process) const {
  const auto found = progress_.find(process);
  if (found == progress_.end()) return std::nullopt;
  return found->second;
}

void AgentLink::start(int process, size_t place, const job::Command& command) {
  if (places_[place].failed())
    throw job::StartError(fmt::format("its host is lost: {}", places_[place].why_not.why));
  started_.insert(process);
  running_[process] = place;
  channel_->send(reach::FrameType::kStart,
                 encode(StartMessage{process, static_cast<int>(place), command}, before_));
  before_ = command;
}

bool AgentLink::runs_below(int process) const {
  const auto found = running_.find(process);
  return found != running_.end() && found->second > 0;
}

void AgentLink::signal(int process, int number, job::SignalScope scope) {
  if (state_ != State::kReady || running_.count(process) == 0) return;
  channel_->send(reach::FrameType::kSignal, wire::PayloadWriter()
                                                .number(static_cast<uint64_t>(process))
                                                .number(static_cast<uint64_t>(number))
                                                .number(scope == job::SignalScope::kGroup ? 1 : 0)
                                                .bytes());
}

void AgentLink::show_stacks(int process, job::Debugger debugger) {
  if (state_ != State::kReady || running_.count(process) == 0) return;
  channel_->send(reach::FrameType::kShowStacks,
                 wire::PayloadWriter()
                     .number(static_cast<uint64_t>(process))
                     .number(debugger == job::Debugger::kPySpy ? 1 : 0)
                     .bytes());
}

void AgentLink::give_input(int process, std::string_view bytes) {
  if (state_ == State::kReady && running_.count(process) != 0)
    channel_->send(
        reach::FrameType::kInput,
        wire::PayloadWriter().number(static_cast<uint64_t>(process)).text(bytes).bytes());
}

uint64_t AgentLink::input_taken(int process) const {
  if (running_.count(process) == 0) return ~uint64_t{0};
  const auto found = input_taken_.find(process);
  return found == input_taken_.end() ? 0 : found->second;
}

void AgentLink::hold_output(bool hold) {
  if (state_ == State::kReady)
    channel_->send(reach::FrameType::kHold, wire::PayloadWriter().number(hold ? 1 : 0).bytes());
}

void AgentLink::forward_files(std::string_view message) {
  if (state_ == State::kReady) channel_->send(reach::FrameType::kFiles, message);
}

void AgentLink::finish() {
  if (state_ != State::kReady) return;
  channel_->send(reach::FrameType::kFinish);
  channel_->flush();
}

void AgentLink::dispatch(job::HostEvents& events) {
  if (is_over() || is_to_wait()) return;
  channel_->flush();
  read_errors();
  if (!closed_at_) {
    try {
      const bool open = channel_->receive([&](const reach::Frame& frame) {
        heartbeat_.heard();
        on_frame(frame, events);
      });
      if (!open) closed_at_ = std::chrono::steady_clock::now();
    } catch (const wire::ProtocolError& error) {
      fail(fmt::format("its agent broke the protocol: {}", error.what()));
    }
  }
  see_process_end();
  if (state_ == State::kFinished) return;
  if (!failure_.empty()) return give_up(failure_, events);
  check_clock(events);
  channel_->flush();
}

void AgentLink::read_errors() {
  std::array<char, 4096> bytes;
  ssize_t size = 0;
  while (errors_ && (size = read(errors_.number(), bytes.data(), bytes.size())) > 0)
    error_text_.append(bytes.data(), static_cast<size_t>(size));
  if (errors_ && size == 0) errors_.reset();
  if (error_text_.size() > 2 * kMostErrorText)
    error_text_.erase(0, error_text_.size() - kMostErrorText);
}

void AgentLink::see_process_end() {
  if (pid_ < 0) return;
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0)
    return;
  process::ProcessEnd end;
  if (info.si_code == CLD_EXITED)
    end.exit_code = info.si_status;
  else
    end.signal = info.si_status;
  on_process_end(end);
}

void AgentLink::on_process_end(const process::ProcessEnd& end) {
  pid_ = -1;
  process_end_ = end;
  process_.reset();
  read_errors();
}

// A lost link is reported in two pieces, in any order: the end of the channel, and the end or the
// output of the process that connects the agent. check_clock() waits for both for a short time,
// because the second piece has the reason.
void AgentLink::check_clock(job::HostEvents& events) {
  const auto now = std::chrono::steady_clock::now();
  if (const std::string why = closed_at_ ? transport_.why_command_ended() : ""; !why.empty())
    return give_up(why, events, true);
  const std::string words = closed_at_ ? transport_.words_about(host_) : "";
  const bool may_tell = words.empty() && (pid_ >= 0 || transport_.event_fd() >= 0);
  if (closed_at_ && (process_end_ || !may_tell || now - *closed_at_ > kForReason)) {
    const std::string text = error_text_.empty() ? channel_->text_before() : error_text_;
    if (state_ == State::kConnecting && process_end_ && transport_.was_dropped(*process_end_, text))
      return try_later(transport_.why_not_reached(*process_end_, text));
    if (state_ == State::kConnecting)
      return give_up(process_end_ ? transport_.why_not_reached(*process_end_, text)
                                  : "no agent: the command closed its output",
                     events);
    const size_t end = error_text_.find_last_not_of("\r\n ");
    const size_t begin = end == error_text_.npos ? 0 : error_text_.find_last_of("\r\n", end) + 1;
    const std::string why =
        end == error_text_.npos ? words : error_text_.substr(begin, end + 1 - begin);
    return give_up(why.empty() ? "the connection to its agent ended"
                               : fmt::format("the connection to its agent ended ({})", why),
                   events);
  }
  if (!heartbeat_.tick() || state_ != State::kReady) return;
  if (heartbeat_.is_over())
    return give_up(fmt::format("no heartbeat for {}", hosts::duration_text(heartbeat_.limit())),
                   events);
  if (!channel_->wants_to_write()) channel_->send(reach::FrameType::kHeartbeat);
}

void AgentLink::fail(const std::string& why) {
  if (failure_.empty()) failure_ = why;
}

void AgentLink::give_up(const std::string& why, job::HostEvents& events, bool of_transport) {
  if (is_over()) return;
  const job::HostLoss own{why, of_transport, of_transport};
  const job::HostLoss below = lose(own);
  for (const auto& [process, place] : std::exchange(running_, {}))
    events.on_lost(process, place == 0 ? own : below);
}

// Marks the agent's own host and the hosts below it as lost. Returns the loss of the hosts below.
job::HostLoss AgentLink::lose(const job::HostLoss& own) {
  const job::HostLoss below{
      fmt::format("its connection runs through host {}, which was {}: {}", host_.name,
                  state_ == State::kConnecting ? "not reached" : "lost", own.why),
      true};
  state_ = State::kLost;
  why_ = own.why;
  channel_->close();
  if (pid_ > 0) kill(-pid_, SIGKILL);
  // These descriptors are not read any more, so they must not wake the poll loop.
  process_.reset();
  errors_.reset();
  for (size_t place = 0; place < places_.size(); ++place) {
    if (!places_[place].failed()) on_unreached(place, place == 0 ? own : below);
  }
  return below;
}

void AgentLink::stop_waiting(const std::string& why, job::HostEvents& events) {
  if (state_ == State::kConnecting)
    return give_up(drops_ > 0 ? fmt::format("{}, {} times", dropped_, drops_) : why, events);
  for (size_t place = 0; place < places_.size(); ++place) {
    if (!places_[place].known()) on_unreached(place, {why});
  }
}

void AgentLink::on_ready(size_t place, ReadyMessage message) {
  Place& one = places_[place];
  if (!one.known()) --unknown_;
  if (message.health) one.clock_skew_ms = message.health->clock_ms - now_ms();
  one.about = std::move(message);
  news_.push_back(place);
}

void AgentLink::on_unreached(size_t place, job::HostLoss loss) {
  if (!places_[place].known()) --unknown_;
  places_[place].why_not = std::move(loss);
  news_.push_back(place);
}

}  // namespace smp::agent
