#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "smp/launcher/file_descriptor.h"
#include "smp/launcher/file_limit.h"
#include "smp/launcher/host.h"
#include "smp/launcher/host_health.h"
#include "smp/launcher/host_list.h"
#include "smp/launcher/transport.h"

namespace smp {

class AgentLink;

// Some hosts could not be reached; what() has a line for each, with the reason.
class HostsUnreachable : public std::runtime_error {
 public:
  HostsUnreachable(const std::string& text, std::vector<std::string> names)
      : std::runtime_error(text), hosts(std::move(names)) {}
  std::vector<std::string> hosts;
};

struct HostGroupOptions {
  std::chrono::milliseconds silence{3000};            // after which a host counts as lost
  std::chrono::milliseconds connect_timeout{30'000};  // for all agents together
  bool asks_health = false;
  bool asks_topology = false;
};

// What an agent says of its host.
struct HostFacts {
  std::string name;  // what it calls itself
  int cpus = 1;
  int port = 0;                        // kept free there for the ranks to meet at; 0: none
  std::vector<std::string> addresses;  // "eth0=10.0.0.1"
  std::string network;                 // equal where the loopback interface is the same one
  std::string reached_at;              // the address under which ssh reached it; may be empty
  std::optional<HostHealth> health;    // where it was asked for
  int64_t clock_skew_ms = 0;           // with it
  std::string topology;                // of its CPUs (parse_topology), where it was asked for
};

// Several machines as one Host: an agent on each, reached through a Transport. Processes go where
// place() says. A host that goes away, or from which nothing is heard, is lost: its processes are
// told as such, and its agent ends them by itself. One thread.
class HostGroup : public Host {
 public:
  HostGroup(std::vector<HostSpec> hosts, Transport& transport, HostGroupOptions options);
  ~HostGroup() override;
  HostGroup(const HostGroup&) = delete;
  HostGroup& operator=(const HostGroup&) = delete;

  // Waits until every agent is ready. Throws HostsUnreachable. Returns early when `control_fd` (-1:
  // there is none) gives the number of a signal that ends jobs, or ends itself: 0.
  std::optional<int> connect(int control_fd);
  HostFacts about(int host) const;
  // Empty for a host whose agent is ready.
  std::string why_not_reached(int host) const;

  // Where each process will be started.
  void place(std::vector<int> host_of_process) { host_of_ = std::move(host_of_process); }

  std::string name() const override;
  void start(int process, const Command& command) override;
  void signal(int process, int signal, SignalScope scope) override;
  int event_fd() const override { return events_.number(); }
  void dispatch(HostEvents& events) override;
  void hold_output(bool hold) override;
  std::optional<RankProgress> progress(int process) const override;
  int finish(HostEvents& events) override;
  bool heard_since(int process, std::chrono::steady_clock::time_point time) const override;

 private:
  // File descriptors of a link that the epoll knows; -1: none.
  struct Watched {
    int in = -1, errors = -1, process = -1, out = -1;
  };

  AgentLink& link_of(int process) const;
  void watch(size_t host);
  void watch_one(int& known, int wanted, uint32_t events, size_t host);
  std::string unreachable_text() const;
  size_t links_that(bool (*holds)(const AgentLink& link)) const;

  const RaisedFileLimit file_limit_;
  HostGroupOptions options_;
  std::vector<std::unique_ptr<AgentLink>> links_;
  std::vector<Watched> watched_;
  std::vector<int> host_of_;
  FileDescriptor events_;  // epoll over all links and clock_
  FileDescriptor clock_;   // timerfd
  bool held_ = false;
};

// The address of `host` that the other hosts reach it at: of the network interface that is named,
// or else the one that it was named by or reached at, or its first. Throws ConfigError if it has no
// such interface.
std::string address_of(const HostSpec& host, const HostFacts& facts, const std::string& interface);

}  // namespace smp
