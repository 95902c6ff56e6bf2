#include "agent/agent_session.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "reach/host_addresses.h"
#include "smp/launcher/local/binding.h"
#include "smp/launcher/process/watchdog.h"
#include "smp/plan/base/build_id.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/base/exit_code.h"
#include "smp/rendezvous/sockets/host_identity.h"

namespace smp::agent {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kForWelcome{30'000};
constexpr milliseconds kForLastWords{2'000};   // for sending the last frames to the launcher
constexpr milliseconds kBetweenProgress{900};  // of the same rank
constexpr milliseconds kForDisk{20};           // the usual time; the session does not wait longer
constexpr size_t kMostWaitingBytes = 4 << 20;  // unsent; above that the ranks wait

// Removes the error file of an earlier run in the same folder.
void make_room_for(const std::string& error_file) {
  std::error_code error;
  const auto folder = std::filesystem::path(error_file).parent_path();
  std::filesystem::create_directories(folder, error);
  if (error)
    throw job::StartError(
        fmt::format("cannot create folder '{}': {}", folder.string(), error.message()));
  std::filesystem::remove(error_file, error);
}

}  // namespace

struct AgentSession::Beside {
  Then then;
  std::exception_ptr error;
  std::atomic<bool> done{false};
};

AgentSession::AgentSession(reach::FrameChannel channel, int control_fd, local::ProcessHost& host,
                           MakeTransport make_agent_transport, std::string files_folder)
    : channel_(std::move(channel)),
      control_fd_(control_fd),
      host_(host),
      make_transport_(std::move(make_agent_transport)),
      heartbeat_(kForWelcome),
      received_files_(std::make_shared<ReceivedFolder>(std::move(files_folder))) {}

int AgentSession::run() {
  channel_.send(reach::FrameType::kHello, encode(HelloMessage{kProtocolVersion, own_build_id()}));
  tell_watchdog();
  try {
    while (!over_ && !finish_asked_) poll_once();
  } catch (const wire::ProtocolError& error) {
    fmt::print(stderr, "smp-launch --agent: the launcher broke the protocol: {}\n", error.what());
    over_ = true;
  }
  int left_behind = 0;
  if (over_) end_below();
  if (below_) below_->begin_finish();
  left_behind += host_.finish(*this);
  if (below_) left_behind += below_->finish(*this);
  end_below();
  if (!beside_) received_files_->remove();
  if (over_) return static_cast<int>(ExitCode::kLauncherError);
  channel_.send(reach::FrameType::kFinished,
                wire::PayloadWriter().number(static_cast<uint64_t>(left_behind)).bytes());
  say_last_words();
  return static_cast<int>(ExitCode::kOk);
}

void AgentSession::poll_once() {
  const bool hold = hold_asked_ || channel_.waiting_bytes() > kMostWaitingBytes;
  host_.hold_output(hold);
  if (below_) below_->hold_output(hold);
  const short out_events = channel_.wants_to_write() ? POLLOUT : 0;
  pollfd ready[6] = {{host_.event_fd(), POLLIN, 0},
                     {channel_.in(), POLLIN, 0},
                     {control_fd_, POLLIN, 0},
                     {channel_.out(), out_events, 0},
                     {below_ ? below_->event_fd() : -1, POLLIN, 0},
                     {disk_.event_fd(), POLLIN, 0}};
  poll(ready, 6, static_cast<int>(heartbeat_.interval().count()));
  if (ready[2].revents != 0 && told_to_end()) over_ = true;
  if (ready[1].revents != 0) {
    heartbeat_.heard();
    if (!channel_.receive([this](const reach::Frame& frame) { on_frame(frame); })) over_ = true;
  }
  go_on();
  if (ready[0].revents != 0) host_.dispatch(*this);
  if (ready[4].revents != 0) {
    below_->dispatch(*this);
    tell_of_hosts();
  }
  tell_pushed();
  tell_input_taken();
  channel_.flush();
  if (heartbeat_.tick()) {
    if (heartbeat_.is_over()) over_ = true;
    tell_progress();
    channel_.flush();
    tell_usage();
    send_heartbeat();
  }
}

// Twice the heartbeat limit, so that the launcher reports the silence first.
void AgentSession::tell_watchdog() {
  if (control_fd_ >= 0) process::may_be_stopped_for(2 * heartbeat_.limit(), control_fd_);
}

// The launcher treats a silent agent as lost.
void AgentSession::send_heartbeat() {
  if (!channel_.wants_to_write()) channel_.send(reach::FrameType::kHeartbeat);
  channel_.flush();
}

void AgentSession::on_still_finishing() {
  if (over_) return;
  channel_.flush();
  if (heartbeat_.tick()) send_heartbeat();
}

// True for a signal to end, and for the death of the watchdog. The first signal that asks for a
// checkpoint is reported to the launcher, which can make all ranks save; the second one ends.
bool AgentSession::told_to_end() {
  unsigned char number = 0;
  const ssize_t size = read(control_fd_, &number, 1);
  if (size < 0) return errno != EINTR && errno != EAGAIN;
  if (size == 1 && !told_posts_.empty() && told_signals_.count(number) != 0) {
    told_signals_.clear();
    on_signalled(number, host_.name());
    return false;
  }
  return size == 0 || number == SIGINT || number == SIGTERM || number == SIGHUP ||
         number == SIGQUIT;
}

void AgentSession::on_signalled(int number, const std::string& host) {
  channel_.send(reach::FrameType::kSignalled,
                wire::PayloadWriter().number(static_cast<uint64_t>(number)).text(host).bytes());
}

void AgentSession::on_frame(const reach::Frame& frame) {
  if (!has_to_wait(frame)) return act_on(frame);
  frames_behind_.emplace_back(frame.type, std::string(frame.payload));
}

// Frames for a running rank, and frames that end the job, do not wait for the start of another
// rank.
bool AgentSession::has_to_wait(const reach::Frame& frame) const {
  switch (frame.type) {
    case reach::FrameType::kHeartbeat:
    case reach::FrameType::kHold:
    case reach::FrameType::kFinish: return false;
    case reach::FrameType::kSignal:
    case reach::FrameType::kShowStacks:
    case reach::FrameType::kInput:
      return beside_ != nullptr &&
             told_posts_.count(wire::PayloadReader(frame.payload).small_number()) == 0;
    default: return beside_ != nullptr;
  }
}

void AgentSession::beside(size_t bytes, std::function<void()> work, Then then) {
  beside_ = std::make_shared<Beside>();
  beside_->then = std::move(then);
  disk_.add(bytes, [result = beside_, work = std::move(work)] {
    try {
      work();
    } catch (...) {
      result->error = std::current_exception();
    }
    result->done = true;
  });
  if (!disk_.wait(kForDisk)) return;
  const auto ended = std::exchange(beside_, nullptr);
  ended->then(ended->error);
}

void AgentSession::go_on() {
  disk_.forget_done();
  if (beside_ && beside_->done) {
    const auto ended = std::exchange(beside_, nullptr);
    ended->then(ended->error);
  }
  while (!beside_ && !frames_behind_.empty()) {
    const auto [type, payload] = std::move(frames_behind_.front());
    frames_behind_.pop_front();
    act_on({type, payload});
  }
}

void AgentSession::act_on(const reach::Frame& frame) {
  wire::PayloadReader reader(frame.payload);
  switch (frame.type) {
    case reach::FrameType::kHeartbeat: return;
    case reach::FrameType::kWelcome: return welcome(decode_welcome(frame.payload));
    case reach::FrameType::kStart: return start(decode_start(frame.payload, before_));
    case reach::FrameType::kSignal: {
      const int process = reader.small_number();
      const int number = reader.small_number();
      return host_of(process).signal(
          process, number,
          reader.number() != 0 ? job::SignalScope::kGroup : job::SignalScope::kProcess);
    }
    case reach::FrameType::kShowStacks: {
      const int process = reader.small_number();
      return host_of(process).show_stacks(
          process, reader.number() != 0 ? job::Debugger::kPySpy : job::Debugger::kGdb);
    }
    case reach::FrameType::kFiles: return take_push(frame.payload);
    case reach::FrameType::kInput: return take_input(reader);
    case reach::FrameType::kHold: hold_asked_ = reader.number() != 0; return;
    case reach::FrameType::kFinish: finish_asked_ = true; return;
    default: throw wire::ProtocolError("a message that is not for an agent");
  }
}

void AgentSession::welcome(const WelcomeMessage& message) {
  const auto refuse = [this](const std::string& why) {
    channel_.send(reach::FrameType::kRefused, wire::PayloadWriter().text(why).bytes());
  };
  if (message.protocol != kProtocolVersion || message.build != own_build_id())
    throw wire::ProtocolError("a launcher of another build");
  if (!message.folder.empty() && chdir(message.folder.c_str()) != 0)
    return refuse(fmt::format(
        "cannot change to folder '{}': {} (ranks run in the working folder of smp-launch)",
        message.folder, strerror(errno)));
  if (const std::string why = why_not_shared(message.shared); !why.empty()) return refuse(why);
  heartbeat_ = reach::HeartbeatMonitor(milliseconds(message.heartbeat_timeout_ms));
  tell_watchdog();
  told_signals_ = message.told_signals;
  if (message.usage_ms > 0) host_.sample_usage(milliseconds(message.usage_ms));
  ReadyMessage ready;
  try {
    if (message.reserves_port) ready.port = port_.emplace().number();
    ready.network = sockets::own_host_identity();
  } catch (const std::runtime_error& error) {
    return refuse(error.what());
  }
  ready.name = host_.name();
  ready.cpus = environment::available_cpus();
  ready.addresses = reach::own_addresses();
  ready.reached_at = reach::address_reached_by_ssh();
  if (message.asks_health) ready.health = health::own_health();
  try {
    if (message.asks_topology) ready.topology = local::text_of_topology(local::own_topology());
  } catch (const ConfigError& error) {
    return refuse(error.what());
  }
  channel_.send(reach::FrameType::kReady, encode(ready));
  if (!message.below.empty()) reach(message);
}

void AgentSession::reach(const WelcomeMessage& message) {
  HostGroupOptions options;
  options.heartbeat_timeout = milliseconds(message.heartbeat_timeout_ms);
  options.asks_health = message.asks_health;
  options.asks_topology = message.asks_topology;
  options.reserves_port = false;
  options.usage_interval = milliseconds(message.usage_ms);
  options.fan_out = message.fan_out;
  options.transport = message.transport;
  options.runs_here = !message.folder.empty();
  options.shared = message.shared;
  options.ending_signals = message.told_signals;
  transport_ = make_transport_(message.transport);
  below_.emplace(message.below, *transport_, options);
  host_.set_neighbour(&*below_);
  tell_of_hosts();
}

void AgentSession::take_push(std::string_view message) {
  if (files_refused_) return;
  if (below_) below_->forward_files(message);
  const auto work = [files = received_files_, bytes = std::string(message)] {
    const bool all = files->take(bytes);
    if (all && chdir(files->path().c_str()) != 0)  // for all threads
      throw FilesRefused(
          fmt::format("cannot change to folder '{}': {}", files->path(), strerror(errno)));
  };
  beside(message.size(), work, [this](std::exception_ptr error) {
    try {
      if (error) std::rethrow_exception(error);
      ++taken_;
    } catch (const FilesRefused& refused) {
      files_refused_ = true;
      channel_.send(reach::FrameType::kRefused, wire::PayloadWriter().text(refused.what()).bytes());
    }
  });
}

void AgentSession::tell_pushed() {
  const uint64_t by_all = below_ ? std::min(taken_, below_->files_taken()) : taken_;
  if (by_all == told_taken_) return;
  told_taken_ = by_all;
  channel_.send(reach::FrameType::kFilesTaken, wire::PayloadWriter().number(by_all).bytes());
}

void AgentSession::take_input(wire::PayloadReader& reader) {
  const int process = reader.small_number();
  if (told_posts_.count(process) == 0) return;  // the process has ended
  job::Host& host = host_of(process);
  const std::string_view bytes = reader.text();
  if (bytes.empty()) return host.end_input(process);
  host.give_input(process, bytes);
  told_input_.emplace(process, 0);
}

void AgentSession::tell_input_taken() {
  for (auto& [process, told] : told_input_) {
    const uint64_t taken = host_of(process).input_taken(process);
    if (taken == told || told_posts_.count(process) == 0) continue;
    told = taken;
    channel_.send(
        reach::FrameType::kInputTaken,
        wire::PayloadWriter().number(static_cast<uint64_t>(process)).number(taken).bytes());
  }
}

// The agents below see the end of their channels and end themselves.
void AgentSession::end_below() {
  host_.set_neighbour(nullptr);
  below_.reset();
}

void AgentSession::tell_of_hosts() {
  for (const int host : below_->take_news()) {
    const job::HostLoss loss = below_->why_not_reached(host);
    wire::PayloadWriter writer;
    writer.number(static_cast<uint64_t>(host) + 1);
    if (loss.why.empty())
      channel_.send(reach::FrameType::kBelow, writer.text(below_->ready_bytes(host)).bytes());
    else
      channel_.send(reach::FrameType::kUnreached,
                    writer.number(loss.through_other ? 1 : 0).text(loss.why).bytes());
  }
}

job::Host& AgentSession::host_of(int process) {
  if (below_ && ranks_below_.count(process) != 0) return *below_;
  return host_;
}

void AgentSession::start(StartMessage message) {
  before_ = std::move(message.command);
  if (port_) port_->lend(true);
  if (message.place != 0) return start_below(message.process, message.place);
  if (before_.error_file.empty()) return start_here(message.process);
  beside(
      0, [file = before_.error_file] { make_room_for(file); },
      [this, process = message.process](std::exception_ptr error) {
        try {
          if (error) std::rethrow_exception(error);
        } catch (const job::StartError& refused) {
          return on_start_failed(process, refused.what());
        }
        start_here(process);
      });
}

// The command of `before_`.
void AgentSession::start_here(int process) {
  job::Command command = before_;
  command.environment = environment::merged_environment(inherited_, before_.environment);
  try {
    host_.start(process, command);
    told_posts_[process] = 0;
  } catch (const job::StartError& error) {
    on_start_failed(process, error.what());
  }
}

void AgentSession::start_below(int process, int place) {
  if (!below_ || place < 0 || static_cast<size_t>(place) > below_->hosts())
    throw wire::ProtocolError("a rank of a host that is not reached from here");
  below_->place(process, place - 1);
  try {
    below_->start(process, before_);
    ranks_below_.insert(process);
    told_posts_[process] = 0;
  } catch (const job::StartError& error) {
    on_start_failed(process, error.what());
  }
}

void AgentSession::on_start_failed(int process, const std::string& why) {
  told_posts_.erase(process);
  channel_.send(reach::FrameType::kStartFailed,
                wire::PayloadWriter().number(static_cast<uint64_t>(process)).text(why).bytes());
}

void AgentSession::on_lost(int process, const job::HostLoss& loss) {
  if (over_) return;
  tell_progress_of(process);
  told_posts_.erase(process);
  channel_.send(reach::FrameType::kLost, wire::PayloadWriter()
                                             .number(static_cast<uint64_t>(process))
                                             .number(loss.through_other ? 1 : 0)
                                             .text(loss.why)
                                             .bytes());
}

void AgentSession::tell_progress() {
  const auto now = std::chrono::steady_clock::now();
  if (now - told_at_ < kBetweenProgress || channel_.wants_to_write()) return;
  told_at_ = now;
  for (const auto& [process, posts] : told_posts_) tell_progress_of(process);
}

void AgentSession::tell_usage() {
  if (channel_.wants_to_write()) return;
  for (system::HostUsage& usage : host_.take_usage()) {
    usage.host.clear();  // the launcher uses the name that the user gave
    channel_.send(reach::FrameType::kUsage, system::usage_json(usage));
  }
  if (!below_) return;
  for (const system::HostUsage& usage : below_->take_usage())
    channel_.send(reach::FrameType::kUsage, system::usage_json(usage));
}

void AgentSession::tell_progress_of(int process) {
  const auto progress = host_of(process).progress(process);
  if (!progress || progress->posts == told_posts_[process]) return;
  told_posts_[process] = progress->posts;
  channel_.send(reach::FrameType::kProgress, encode_progress(process, *progress));
}

void AgentSession::on_output(int process, job::Stream stream, std::string_view bytes,
                             std::chrono::system_clock::time_point time) {
  const auto ms = std::chrono::duration_cast<milliseconds>(time.time_since_epoch());
  channel_.send(reach::FrameType::kOutput, wire::PayloadWriter()
                                               .number(static_cast<uint64_t>(process))
                                               .number(stream == job::Stream::kErr ? 1 : 0)
                                               .number(static_cast<uint64_t>(ms.count()))
                                               .text(bytes)
                                               .bytes());
}

void AgentSession::on_ended(int process, const process::ProcessEnd& end) {
  if (over_) return;  // this agent ends its ranks; the end of the channel reports that
  tell_progress_of(process);
  told_posts_.erase(process);
  channel_.send(reach::FrameType::kEnded, encode_end(process, end));
}

void AgentSession::on_stacks_shown(int process) {
  channel_.send(reach::FrameType::kStacksShown,
                wire::PayloadWriter().number(static_cast<uint64_t>(process)).bytes());
}

void AgentSession::on_not_permitted(int process) {
  channel_.send(reach::FrameType::kNotPermitted,
                wire::PayloadWriter().number(static_cast<uint64_t>(process)).bytes());
}

void AgentSession::on_stopped(int process, bool stopped) {
  channel_.send(
      reach::FrameType::kStopped,
      wire::PayloadWriter().number(static_cast<uint64_t>(process)).number(stopped ? 1 : 0).bytes());
}

void AgentSession::say_last_words() {
  const auto deadline = std::chrono::steady_clock::now() + kForLastWords;
  while (channel_.wants_to_write() && std::chrono::steady_clock::now() < deadline) {
    pollfd ready{channel_.out(), POLLOUT, 0};
    poll(&ready, 1, 100);
    channel_.flush();
  }
}

}  // namespace smp::agent
