#include "smp/launcher/agent/host_group.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "agent/agent_session.h"
#include "hosts/host_tree.h"

using namespace smp;
using namespace smp::agent;
using namespace smp::hosts;
using namespace smp::job;
using namespace smp::local;
using namespace smp::reach;
using namespace smp::system;
using std::chrono::milliseconds;

// Hosts as smp-launch, or an agent that reaches further ones, sees them.

namespace {

std::vector<HostSpec> hosts_named(const std::vector<std::string>& names) {
  std::vector<HostSpec> hosts(names.size());
  for (size_t i = 0; i < names.size(); ++i) hosts[i].name = names[i];
  return hosts;
}

// To no agent: each way of why there can be none, by the host's name.
class NoTransport : public AgentTransport {
 public:
  Command command_for(const HostSpec&) const override { return {}; }
  AgentStreams open(const HostSpec& host) override {
    if (host.name == "a") throw StartError("cannot start 'ssh': No such file or directory");
    throw std::system_error(EMFILE, std::generic_category(), "cannot start an agent: pipe");
  }
};

// What agents that are threads share with their test.
struct Threads {
  std::map<std::string, FileDescriptor> controls;  // by host, for the numbers of signals
  std::atomic<int> started{0};                     // ranks

  void signal(const std::string& host, unsigned char number) {
    REQUIRE(write(controls.at(host).number(), &number, 1) == 1);
  }
};

// No ranks, but children of theirs that take long to die.
class SlowHost : public ProcessHost {
 public:
  SlowHost(std::string name, milliseconds slow, Threads& threads)
      : name_(std::move(name)), slow_(slow), threads_(threads) {}
  std::string name() const override { return name_; }
  void start(int, const Command&) override { ++threads_.started; }
  void signal(int, int, SignalScope) override {}
  int event_fd() const override { return never_.number(); }
  void dispatch(HostEvents&) override {}
  void hold_output(bool) override {}
  int finish(HostEvents& events) override {
    const auto end = std::chrono::steady_clock::now() + slow_;
    while (std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(milliseconds(10));
      events.on_still_finishing();
    }
    return 1;
  }
  void sample_usage(milliseconds) override {}
  void set_neighbour(ChildOwner*) override {}

 private:
  std::string name_;
  milliseconds slow_;
  Threads& threads_;
  FileDescriptor never_{eventfd(0, EFD_CLOEXEC)};
};

// Agents as threads, those of "slow..." with a SlowHost that is.
class ThreadTransport : public AgentTransport {
 public:
  explicit ThreadTransport(Threads& shared) : shared_(shared) {}
  Command command_for(const HostSpec&) const override { return {}; }
  AgentStreams open(const HostSpec& host) override {
    int ends[2], control[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    REQUIRE(pipe2(control, O_NONBLOCK | O_CLOEXEC) == 0);
    shared_.controls.insert_or_assign(host.name, FileDescriptor(control[1]));
    const milliseconds slow(host.name.starts_with("slow") ? 1500 : 0);
    threads_.emplace_back([&shared = shared_, name = host.name, end = ends[1], in = control[0],
                           slow] {
      const FileDescriptor told(in);
      SlowHost own(name, slow, shared);
      AgentSession({FileDescriptor(end), FileDescriptor(fcntl(end, F_DUPFD_CLOEXEC, 0))}, in, own,
                   [&shared](const AgentTransportOptions&) {
                     return std::make_unique<ThreadTransport>(shared);
                   })
          .run();
    });
    AgentStreams line;
    line.in = FileDescriptor(ends[0]);
    line.out = FileDescriptor(fcntl(ends[0], F_DUPFD_CLOEXEC, 0));
    return line;
  }

 private:
  Threads& shared_;
  std::vector<std::jthread> threads_;
};

struct Told : IgnoredEvents {
  std::vector<std::string> signals;
  std::string lost;

  void on_signalled(int number, const std::string& host) override {
    signals.push_back(std::to_string(number) + " at " + host);
  }
  void on_lost(int, const HostLoss& loss) override { lost = loss.why; }
};

}  // namespace

TEST_CASE("an agent that cannot be started is a reason of its host, not the end of whoever tries") {
  NoTransport transport;
  HostGroupOptions options;
  options.fan_out = 2;
  HostGroup group(hosts_named({"a", "b", "c"}), transport, options);
  CHECK(group.take_news() == std::vector<int>{0, 1, 2});
  CHECK(group.why_not_reached(1).through_other);
  CHECK(!group.why_not_reached(2).through_other);
  CHECK_THROWS_WITH_AS(
      group.connect(-1),
      "3 of 3 hosts could not be used:\n  host a: cannot start 'ssh': No such file or directory\n  "
      "host b: its connection runs through host a, which was not reached: cannot start 'ssh': No "
      "such file "
      "or directory\n  host c: cannot start an agent: pipe: Too many open files",
      HostsUnreachable);
  CHECK_THROWS_WITH_AS(
      [&] {
        group.place(0, 2);
        group.start(0, {});
      }(),
      "its host is lost: cannot start an agent: pipe: Too many open files", StartError);
}

TEST_CASE("agents that take longer to finish than one may be silent are not lost") {
  signal(SIGPIPE, SIG_IGN);  // as in smp-launch: an agent may write to whoever has just gone
  Threads threads;
  ThreadTransport transport(threads);
  HostGroupOptions options;
  options.heartbeat_timeout = milliseconds(500);
  options.fan_out = 1;
  options.reserves_port = false;
  // Each reaches the next: the first waits for itself, and then for the others.
  HostGroup group(hosts_named({"slow-a", "b", "slow-c"}), transport, options);
  group.connect(-1);
  IgnoredEvents none;
  CHECK(group.finish(none) == 3);
}

TEST_CASE(
    "an agent with ranks tells a signal that asks for a checkpoint, and ends by the next one") {
  signal(SIGPIPE, SIG_IGN);
  Threads threads;
  ThreadTransport transport(threads);
  HostGroupOptions options;
  options.fan_out = 1;  // b is reached through a
  options.reserves_port = false;
  options.ending_signals = {SIGTERM};
  HostGroup group(hosts_named({"a", "b"}), transport, options);
  group.connect(-1);
  group.place(0, 1);
  group.start(0, {{"true"}, {}});
  Told told;
  const auto until = [&](const std::function<bool()>& is_so) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!is_so() && std::chrono::steady_clock::now() < limit) {
      group.dispatch(told);
      std::this_thread::sleep_for(milliseconds(1));
    }
  };
  until([&] { return threads.started == 1; });
  threads.signal("b", SIGTERM);
  until([&] { return !told.signals.empty(); });
  CHECK(told.signals == std::vector<std::string>{"15 at b"});
  CHECK(told.lost == "");
  threads.signal("b", SIGTERM);
  until([&] { return !told.lost.empty(); });
  CHECK(told.lost == "the connection to its agent ended");
  CHECK(told.signals.size() == 1);
  group.finish(told);
}

TEST_CASE("levels of a tree of agents") {
  CHECK(levels_of(1, 0) == 1);
  CHECK(levels_of(1000, 0) == 1);
  CHECK(levels_of(7, 7) == 1);
  CHECK(levels_of(8, 7) == 2);
  CHECK(levels_of(7, 2) == 3);
  CHECK(levels_of(4, 1) == 4);
}
