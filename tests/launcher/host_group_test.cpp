#include "smp/launcher/host_group.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <chrono>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "agent_session.h"
#include "host_tree.h"

using namespace smp;
using std::chrono::milliseconds;

// Hosts as smp-launch, or an agent that reaches further ones, sees them.

namespace {

std::vector<HostSpec> hosts_named(const std::vector<std::string>& names) {
  std::vector<HostSpec> hosts(names.size());
  for (size_t i = 0; i < names.size(); ++i) hosts[i].name = names[i];
  return hosts;
}

// To no agent: each way of why there can be none, by the host's name.
class NoTransport : public Transport {
 public:
  Command command_for(const HostSpec&) const override { return {}; }
  Line open(const HostSpec& host) override {
    if (host.name == "a") throw StartError("cannot start 'ssh': No such file or directory");
    throw std::system_error(EMFILE, std::generic_category(), "cannot start an agent: pipe");
  }
};

// No ranks, but children of theirs that take long to die.
class SlowHost : public ProcessHost {
 public:
  explicit SlowHost(milliseconds slow) : slow_(slow) {}
  std::string name() const override { return "slow"; }
  void start(int, const Command&) override {}
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
  milliseconds slow_;
  FileDescriptor never_{eventfd(0, EFD_CLOEXEC)};
};

// Agents as threads, those of "slow..." with a SlowHost.
class ThreadTransport : public Transport {
 public:
  Command command_for(const HostSpec&) const override { return {}; }
  Line open(const HostSpec& host) override {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    const milliseconds slow(host.name.starts_with("slow") ? 1500 : 0);
    threads_.emplace_back([end = ends[1], slow] {
      SlowHost own(slow);
      AgentSession({FileDescriptor(end), FileDescriptor(fcntl(end, F_DUPFD_CLOEXEC, 0))}, -1, own,
                   [](const TransportOptions&) { return std::make_unique<ThreadTransport>(); })
          .run();
    });
    Line line;
    line.in = FileDescriptor(ends[0]);
    line.out = FileDescriptor(fcntl(ends[0], F_DUPFD_CLOEXEC, 0));
    return line;
  }

 private:
  std::vector<std::jthread> threads_;
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
      "3 of 3 hosts could not be used:\n"
      "  host a: cannot start 'ssh': No such file or directory\n"
      "  host b: it is reached through host a, which was not: cannot start 'ssh': No such file or "
      "directory\n"
      "  host c: cannot start an agent: pipe: Too many open files",
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
  ThreadTransport transport;
  HostGroupOptions options;
  options.silence = milliseconds(500);
  options.fan_out = 1;
  options.reserves_port = false;
  // Each reaches the next: the first waits for itself, and then for the others.
  HostGroup group(hosts_named({"slow-a", "b", "slow-c"}), transport, options);
  group.connect(-1);
  IgnoredEvents none;
  CHECK(group.finish(none) == 3);
}

TEST_CASE("levels of a tree of agents") {
  CHECK(levels_of(1, 0) == 1);
  CHECK(levels_of(1000, 0) == 1);
  CHECK(levels_of(7, 7) == 1);
  CHECK(levels_of(8, 7) == 2);
  CHECK(levels_of(7, 2) == 3);
  CHECK(levels_of(4, 1) == 4);
}
