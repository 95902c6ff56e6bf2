#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "agent/agent_session.h"
#include "smp/launcher/agent/host_group.h"
#include "smp/launcher/output/console.h"
#include "smp/launcher/supervision/report.h"
#include "smp/launcher/supervision/supervisor.h"
#include "smp/plan/system/file_descriptor.h"

// A tree of agents with one rank each, most of them simulated: smp-launch's own supervisor, links,
// agents and frames, where the agents of one branch are the threads of one process, and a rank is a
// number that says a line, and ends when it is told to. The first agents of the branches are
// reached through the exec transport, those below through sockets.
//
//   smp_agent_tree HOSTS FAN_OUT [START_LIMIT_S END_LIMIT_S]
//
// When all ranks have said their line, the last one fails. Prints how long it took until then, and
// from the failure until everything had ended and the cause was known; exits with 1 if the cause is
// not that rank, or a limit is passed.

using namespace smp;
using namespace smp::agent;
using namespace smp::hosts;
using namespace smp::job;
using namespace smp::local;
using namespace smp::output;
using namespace smp::process;
using namespace smp::reach;
using namespace smp::supervision;
using namespace smp::system;
using Clock = std::chrono::steady_clock;

namespace {

constexpr int kFailure = 3;
constexpr const char* kFails = "fails";  // on SIGUSR1

double seconds_since(Clock::time_point time) {
  return std::chrono::duration<double>(Clock::now() - time).count();
}

// Ranks without processes.
class SimulatedHost : public ProcessHost {
 public:
  SimulatedHost() : wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  std::string name() const override { return "simulated"; }
  void start(int process, const Command& command) override {
    running_[process] = command.arguments.back() == kFails;
    said_.push_back(process);
    wake();
  }
  void signal(int process, int number, SignalScope) override {
    const auto found = running_.find(process);
    if (found == running_.end()) return;
    if (number == SIGUSR1 && found->second) ended_[process] = {kFailure};
    if (number == SIGTERM || number == SIGKILL) ended_[process] = {0, number};
    wake();
  }
  int event_fd() const override { return wake_.number(); }
  void dispatch(HostEvents& events) override {
    uint64_t count = 0;
    (void)!read(wake_.number(), &count, sizeof count);
    for (const int process : said_)
      events.on_output(process, Stream::kOut, "up\n", std::chrono::system_clock::now());
    said_.clear();
    for (const auto& [process, end] : std::exchange(ended_, {})) {
      running_.erase(process);
      events.on_ended(process, end);
    }
  }
  void hold_output(bool) override {}
  int finish(HostEvents& events) override {
    for (const auto& [process, fails] : running_) ended_[process] = {0, SIGKILL};
    dispatch(events);
    return 0;
  }
  void sample_usage(std::chrono::milliseconds) override {}
  void set_neighbour(ChildOwner*) override {}

 private:
  void wake() {
    const uint64_t one = 1;
    (void)!write(wake_.number(), &one, sizeof one);
  }
  FileDescriptor wake_;
  std::map<int, bool> running_;  // and whether it fails on SIGUSR1
  std::map<int, ProcessEnd> ended_;
  std::vector<int> said_;
};

int run_simulated_agent(FrameChannel channel);

// Agents that are threads of this process.
class ThreadTransport : public AgentTransport {
 public:
  Command command_for(const HostSpec&) const override { return {}; }
  AgentStreams open(const HostSpec&) override {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      throw StartError("socketpair: too few files may be open");
    threads_.emplace_back([end = ends[1]] {
      const int out = fcntl(end, F_DUPFD_CLOEXEC, 0);
      run_simulated_agent(FrameChannel(FileDescriptor(end), FileDescriptor(out)));
    });
    AgentStreams line;
    line.in = FileDescriptor(ends[0]);
    line.out = FileDescriptor(fcntl(ends[0], F_DUPFD_CLOEXEC, 0));
    return line;
  }

 private:
  std::vector<std::jthread> threads_;
};

int run_simulated_agent(FrameChannel channel) {
  SimulatedHost host;
  return AgentSession(
             std::move(channel), -1, host,
             [](const AgentTransportOptions&) { return std::make_unique<ThreadTransport>(); })
      .run();
}

// The hosts as the supervisor sees them. Tells a rank to fail when all have spoken.
class WatchedHosts : public Host, public HostEvents {
 public:
  WatchedHosts(Host& hosts, size_t ranks) : hosts_(hosts), spoke_(ranks, false), silent_(ranks) {}
  Clock::time_point all_up;  // and the last was told to fail

  std::string name() const override { return hosts_.name(); }
  void start(int process, const Command& command) override { hosts_.start(process, command); }
  void signal(int process, int number, SignalScope scope) override {
    hosts_.signal(process, number, scope);
  }
  int event_fd() const override { return hosts_.event_fd(); }
  void dispatch(HostEvents& events) override {
    to_ = &events;
    hosts_.dispatch(*this);
  }
  void hold_output(bool hold) override { hosts_.hold_output(hold); }
  int finish(HostEvents& events) override {
    to_ = &events;
    return hosts_.finish(*this);
  }
  bool heard_since(int process, Clock::time_point time) const override {
    return hosts_.heard_since(process, time);
  }

  void on_output(int process, Stream stream, std::string_view bytes,
                 std::chrono::system_clock::time_point time) override {
    to_->on_output(process, stream, bytes, time);
    if (spoke_[static_cast<size_t>(process)]) return;
    spoke_[static_cast<size_t>(process)] = true;
    if (--silent_ > 0) return;
    all_up = Clock::now();
    hosts_.signal(static_cast<int>(spoke_.size()) - 1, SIGUSR1, SignalScope::kProcess);
  }
  void on_ended(int process, const ProcessEnd& end) override { to_->on_ended(process, end); }
  void on_stopped(int process, bool stopped) override { to_->on_stopped(process, stopped); }
  void on_start_failed(int process, const std::string& why) override {
    to_->on_start_failed(process, why);
  }
  void on_lost(int process, const HostLoss& loss) override { to_->on_lost(process, loss); }

 private:
  Host& hosts_;
  HostEvents* to_ = nullptr;
  std::vector<bool> spoke_;
  size_t silent_;
};

int number_in(const char* text) {
  int number = 0;
  std::from_chars(text, text + std::string_view(text).size(), number);
  return number;
}

int run_tree(const std::string& program, int hosts, int fan_out, double start_limit_s,
             double end_limit_s) {
  std::vector<HostSpec> list(static_cast<size_t>(hosts));
  LaunchJob job;
  job.id = "0123456789abcdef";
  job.output.shown_ranks = {0};
  for (int rank = 0; rank < hosts; ++rank) {
    list[static_cast<size_t>(rank)].name = fmt::format("h{}", rank);
    list[static_cast<size_t>(rank)].slots = 1;
    job.hosts.push_back(list[static_cast<size_t>(rank)].name);
    job.host_of_rank.push_back(rank);
    // As large as what a rank gets.
    Command command{
        {"train", rank == hosts - 1 ? kFails : "runs"}, {fmt::format("RANK={}", rank)}, ""};
    for (int i = 0; i < 40; ++i)
      command.environment.push_back(fmt::format("VARIABLE_{}={:060}", i, i));
    job.commands.push_back(command);
    job.files.emplace_back();
  }
  const FileDescriptor null(open("/dev/null", O_WRONLY | O_CLOEXEC));
  Console console(null.number(), null.number());
  const auto transport =
      make_agent_transport({fmt::format("exec:exec {} --agent", program), "", program});
  HostGroupOptions options;
  options.fan_out = fan_out;
  // All of them share the cores of this machine, where each would have its own.
  options.heartbeat_timeout = std::chrono::seconds(30);
  options.reserves_port = false;

  const Clock::time_point began = Clock::now();
  HostGroup group(list, *transport, options);
  group.connect(-1);
  const double connected_s = seconds_since(began);
  for (int rank = 0; rank < hosts; ++rank) group.place(rank, rank);
  WatchedHosts watched(group, static_cast<size_t>(hosts));
  const JobResult result = supervise(job, watched, console, -1);
  const double end_s = seconds_since(watched.all_up);
  const double start_s = std::chrono::duration<double>(watched.all_up - began).count();
  const bool right = result.end == JobEnd::kRankFailed && result.exit_code == kFailure &&
                     result.cause->rank == hosts - 1;
  fmt::print(
      "{} agents, fan-out {}: all ranks up after {:.2f} s ({:.2f} s to reach the hosts); "
      "from a failure to the end of all {:.2f} s; {}\n",
      hosts, fan_out, start_s, connected_s, end_s, one_line_cause(job, result));
  const bool in_time = start_s <= start_limit_s && end_s <= end_limit_s;
  return right && in_time ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--agent") {
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    signal(SIGPIPE, SIG_IGN);
    return run_simulated_agent(
        FrameChannel(FileDescriptor(STDIN_FILENO), FileDescriptor(STDOUT_FILENO)));
  }
  if (argc != 3 && argc != 5) {
    fmt::print(stderr, "smp_agent_tree HOSTS FAN_OUT [START_LIMIT_S END_LIMIT_S]\n");
    return 2;
  }
  try {
    constexpr double kNoLimit = 1e9;
    return run_tree(argv[0], number_in(argv[1]), number_in(argv[2]),
                    argc == 5 ? std::atof(argv[3]) : kNoLimit,
                    argc == 5 ? std::atof(argv[4]) : kNoLimit);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
