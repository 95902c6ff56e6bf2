#include "smp/launcher/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>

#include "agent_messages.h"
#include "build_id.h"
#include "host_addresses.h"
#include "silence.h"
#include "smp/launcher/binding.h"
#include "smp/launcher/frame_channel.h"
#include "smp/launcher/guard.h"
#include "smp/launcher/local_host.h"
#include "smp/launcher/rank_environment.h"
#include "smp/plan/errors.h"
#include "smp/plan/exit_code.h"

namespace smp {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kForWelcome{30'000};
constexpr milliseconds kForLastWords{2'000};   // to bring the last frames to the launcher
constexpr milliseconds kBetweenProgress{900};  // of the same rank
constexpr size_t kMostWaitingBytes = 4 << 20;  // on their way to the launcher, before ranks wait

class Agent : public HostEvents {
 public:
  Agent(FrameChannel channel, int control_fd)
      : channel_(std::move(channel)), control_fd_(control_fd), silence_(kForWelcome) {}

  int run();

  void on_output(int process, Stream stream, std::string_view bytes,
                 std::chrono::system_clock::time_point time) override;
  void on_ended(int process, const ProcessEnd& end) override;
  void on_stopped(int process, bool stopped) override;
  void on_start_failed(int, const std::string&) override {}  // a LocalHost throws instead
  void on_lost(int, const std::string&) override {}          // of another host only

 private:
  void on_frame(const Frame& frame);
  void welcome(const WelcomeMessage& message);
  void start(StartMessage message);
  void poll_once();
  void tell_progress();
  void tell_progress_of(int process);
  bool told_to_end();
  void say_last_words();

  FrameChannel channel_;
  int control_fd_;
  LocalHost host_;
  SilenceWatch silence_;
  std::optional<ReservedPort> port_;
  std::vector<std::string> inherited_ = own_environment();
  Command before_;                      // the command of the rank that was started last
  std::map<int, uint64_t> told_posts_;  // of the running ranks
  std::chrono::steady_clock::time_point told_at_{};
  bool hold_asked_ = false;
  bool finish_asked_ = false;
  bool over_ = false;  // the other side has gone, or is not to be understood
};

int Agent::run() {
  channel_.send(FrameType::kHello, encode(HelloMessage{kProtocolVersion, own_build_id()}));
  try {
    while (!over_ && !finish_asked_) poll_once();
  } catch (const ProtocolError& error) {
    fmt::print(stderr, "smp-launch --agent: the other side is not to be understood: {}\n",
               error.what());
    over_ = true;
  }
  const int left_behind = host_.finish(*this);
  if (over_) return static_cast<int>(ExitCode::kLauncherError);
  channel_.send(FrameType::kFinished,
                PayloadWriter().number(static_cast<uint64_t>(left_behind)).bytes());
  say_last_words();
  return static_cast<int>(ExitCode::kOk);
}

void Agent::poll_once() {
  host_.hold_output(hold_asked_ || channel_.waiting_bytes() > kMostWaitingBytes);
  const short out_events = channel_.wants_to_write() ? POLLOUT : 0;
  pollfd ready[4] = {{host_.event_fd(), POLLIN, 0},
                     {channel_.in(), POLLIN, 0},
                     {control_fd_, POLLIN, 0},
                     {channel_.out(), out_events, 0}};
  poll(ready, 4, static_cast<int>(silence_.interval().count()));
  if (ready[3].revents != 0) channel_.flush();
  if (ready[2].revents != 0 && told_to_end()) over_ = true;
  if (ready[1].revents != 0) {
    silence_.heard();
    if (!channel_.receive([this](const Frame& frame) { on_frame(frame); })) over_ = true;
  }
  if (ready[0].revents != 0) host_.dispatch(*this);
  if (!silence_.tick()) return;
  if (silence_.is_over()) over_ = true;
  tell_progress();
  if (!channel_.wants_to_write()) channel_.send(FrameType::kAlive);
}

// A signal to end, or the death of the process that guards this one.
bool Agent::told_to_end() {
  unsigned char number = 0;
  const ssize_t size = read(control_fd_, &number, 1);
  if (size < 0) return errno != EINTR && errno != EAGAIN;
  return size == 0 || number == SIGINT || number == SIGTERM || number == SIGHUP ||
         number == SIGQUIT;
}

void Agent::on_frame(const Frame& frame) {
  PayloadReader reader(frame.payload);
  switch (frame.type) {
    case FrameType::kAlive: return;
    case FrameType::kWelcome: return welcome(decode_welcome(frame.payload));
    case FrameType::kStart: return start(decode_start(frame.payload, before_));
    case FrameType::kSignal: {
      const int process = reader.small_number();
      const int number = reader.small_number();
      return host_.signal(process, number,
                          reader.number() != 0 ? SignalScope::kGroup : SignalScope::kProcess);
    }
    case FrameType::kHold: hold_asked_ = reader.number() != 0; return;
    case FrameType::kFinish: finish_asked_ = true; return;
    default: throw ProtocolError("a message that is not for an agent");
  }
}

void Agent::welcome(const WelcomeMessage& message) {
  const auto refuse = [this](const std::string& why) {
    channel_.send(FrameType::kRefused, PayloadWriter().text(why).bytes());
  };
  if (message.protocol != kProtocolVersion || message.build != own_build_id())
    throw ProtocolError("a launcher of another build");
  if (chdir(message.folder.c_str()) != 0)
    return refuse(fmt::format("cannot work in folder '{}': {} (ranks run where smp-launch does)",
                              message.folder, strerror(errno)));
  silence_ = SilenceWatch(milliseconds(message.silence_ms));
  ReadyMessage ready;
  try {
    if (message.reserves_port) ready.port = port_.emplace().number();
    ready.network = own_network();
  } catch (const std::runtime_error& error) {
    return refuse(error.what());
  }
  ready.name = host_.name();
  ready.cpus = available_cpus();
  ready.addresses = own_addresses();
  ready.reached_at = address_reached_by_ssh();
  if (message.asks_health) ready.health = own_health();
  try {
    if (message.asks_topology) ready.topology = text_of_topology(own_topology());
  } catch (const ConfigError& error) {
    return refuse(error.what());
  }
  channel_.send(FrameType::kReady, encode(ready));
}

void Agent::start(StartMessage message) {
  before_ = std::move(message.command);
  Command command = before_;
  command.environment = merged_environment(inherited_, before_.environment);
  try {
    if (!command.error_file.empty()) {
      std::error_code error;
      const auto folder = std::filesystem::path(command.error_file).parent_path();
      std::filesystem::create_directories(folder, error);
      if (error)
        throw StartError(
            fmt::format("cannot create folder '{}': {}", folder.string(), error.message()));
      std::filesystem::remove(command.error_file, error);  // an earlier run's, of the same folder
    }
    host_.start(message.process, command);
    told_posts_[message.process] = 0;
  } catch (const StartError& error) {
    channel_.send(
        FrameType::kStartFailed,
        PayloadWriter().number(static_cast<uint64_t>(message.process)).text(error.what()).bytes());
  }
}

void Agent::tell_progress() {
  const auto now = std::chrono::steady_clock::now();
  if (now - told_at_ < kBetweenProgress || channel_.wants_to_write()) return;
  told_at_ = now;
  for (const auto& [process, posts] : told_posts_) tell_progress_of(process);
}

void Agent::tell_progress_of(int process) {
  const auto progress = host_.progress(process);
  if (!progress || progress->posts == told_posts_[process]) return;
  told_posts_[process] = progress->posts;
  channel_.send(FrameType::kProgress, encode_progress(process, *progress));
}

void Agent::on_output(int process, Stream stream, std::string_view bytes,
                      std::chrono::system_clock::time_point time) {
  const auto ms = std::chrono::duration_cast<milliseconds>(time.time_since_epoch());
  channel_.send(FrameType::kOutput, PayloadWriter()
                                        .number(static_cast<uint64_t>(process))
                                        .number(stream == Stream::kErr ? 1 : 0)
                                        .number(static_cast<uint64_t>(ms.count()))
                                        .text(bytes)
                                        .bytes());
}

void Agent::on_ended(int process, const ProcessEnd& end) {
  if (over_) return;  // it is this agent that ends them: the end of the channel tells
  tell_progress_of(process);
  told_posts_.erase(process);
  channel_.send(FrameType::kEnded, encode_end(process, end));
}

void Agent::on_stopped(int process, bool stopped) {
  channel_.send(
      FrameType::kStopped,
      PayloadWriter().number(static_cast<uint64_t>(process)).number(stopped ? 1 : 0).bytes());
}

void Agent::say_last_words() {
  const auto deadline = std::chrono::steady_clock::now() + kForLastWords;
  while (channel_.wants_to_write() && std::chrono::steady_clock::now() < deadline) {
    pollfd ready{channel_.out(), POLLOUT, 0};
    poll(&ready, 1, 100);
    channel_.flush();
  }
}

// Standard input and output become the channel, out of reach of the ranks, and of anything of ours
// that prints.
FrameChannel take_standard_streams() {
  FileDescriptor in(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  FileDescriptor out(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  const FileDescriptor null(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!in.is_open() || !out.is_open() || !null.is_open())
    throw std::system_error(errno, std::generic_category(), "smp-launch --agent");
  dup2(null.number(), STDIN_FILENO);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  return FrameChannel(std::move(in), std::move(out));
}

int run_over(FrameChannel channel) {
  const int in = channel.in();
  return run_guarded([&](int control_fd) { return Agent(std::move(channel), control_fd).run(); },
                     in);
}

}  // namespace

int run_agent() { return run_over(take_standard_streams()); }

int run_agent(FileDescriptor connection) {
  FileDescriptor out(fcntl(connection.number(), F_DUPFD_CLOEXEC, 0));
  if (!out.is_open()) throw std::system_error(errno, std::generic_category(), "smp-launch");
  return run_over(FrameChannel(std::move(connection), std::move(out)));
}

}  // namespace smp
