#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "smp/launcher/agent/file_distribution.h"
#include "smp/launcher/agent/host_facts.h"
#include "smp/launcher/agent/shared_file.h"
#include "smp/launcher/hosts/host_list.h"
#include "smp/launcher/job/host.h"
#include "smp/launcher/local/child_owner.h"
#include "smp/launcher/process/file_limit.h"
#include "smp/launcher/reach/agent_transport.h"
#include "smp/plan/system/file_descriptor.h"

namespace smp::agent {

class AgentLink;

// Some hosts could not be reached; what() has a line for each, with the reason. `hosts`: without
// those behind another of them, which may be well. `why`: the reasons of some, by host.
class HostsUnreachable : public std::runtime_error {
 public:
  HostsUnreachable(const std::string& text, std::vector<std::string> names,
                   std::map<std::string, std::string> reasons = {})
      : std::runtime_error(text), hosts(std::move(names)), why(std::move(reasons)) {}
  std::vector<std::string> hosts;
  std::map<std::string, std::string> why;
};

struct HostGroupOptions {
  std::chrono::milliseconds heartbeat_timeout{3000};  // after which a host counts as lost
  std::chrono::milliseconds connect_timeout{30'000};  // for all agents together
  bool asks_health = false;
  bool asks_topology = false;
  bool reserves_port = true;  // for the ranks to meet at, on the first host
  // Signals that ask for a checkpoint. They end the wait for agents too, and agents that run ranks
  // report them.
  std::set<int> ending_signals;
  std::chrono::milliseconds usage_interval{0};  // of samples of what ranks use; 0: none
  // With more hosts than this, the agents of so many hosts reach the others. 0: never.
  int fan_out = 0;
  reach::AgentTransportOptions transport;  // with which agents reach others
  // Whether ranks run in this process's folder; else they run in the folder of the received files.
  bool runs_here = true;
  std::vector<SharedFile> shared;  // what every host must have
};

// Several machines as one Host. Each has an agent, which is reached through an AgentTransport, or
// through the agent of another host. place() says where a process runs. A host is lost when its
// connection ends or its heartbeats stop, and so are the hosts that are reached through it. Their
// processes are reported as lost, and their agents end them. One thread.
class HostGroup : public job::Host, public local::ChildOwner {
 public:
  HostGroup(std::vector<hosts::HostSpec> hosts, reach::AgentTransport& transport,
            HostGroupOptions options);
  ~HostGroup() override;
  HostGroup(const HostGroup&) = delete;
  HostGroup& operator=(const HostGroup&) = delete;

  // Waits until every agent is ready. Throws HostsUnreachable. Returns early when `control_fd` (-1:
  // there is none) gives the number of a signal that ends jobs, or ends itself: 0.
  std::optional<int> connect(int control_fd);
  // Sends the files to every host; the ranks then run in the folder that holds them. Throws
  // HostsUnreachable, and ConfigError for a file that cannot be read. Returns early as connect().
  // Another thread reads the files, so that heartbeats go on where the disk hangs.
  std::optional<int> send_files(const std::shared_ptr<FileSource>& files, int control_fd);
  // Passes a message of files on to the hosts below; how many of them all hosts have taken.
  void forward_files(std::string_view message);
  uint64_t files_taken() const;
  HostFacts about(int host) const;
  // Empty for a host whose agent is ready.
  job::HostLoss why_not_reached(int host) const;

  // Hosts that were reached or lost since the last call, for callers that do not connect(). What
  // the agent of a reached one said of its host, byte for byte.
  std::vector<int> take_news();
  std::string ready_bytes(int host) const;

  // Where a process will be started.
  void place(int process, int host);

  size_t hosts() const { return tree_.size(); }
  std::string name() const override;
  void start(int process, const job::Command& command) override;
  void signal(int process, int signal, job::SignalScope scope) override;
  void show_stacks(int process, job::Debugger debugger) override;
  void give_input(int process, std::string_view bytes) override;
  void end_input(int process) override { give_input(process, {}); }
  uint64_t input_taken(int process) const override;
  int event_fd() const override { return events_.number(); }
  void dispatch(job::HostEvents& events) override;
  void hold_output(bool hold) override;
  std::optional<runinfo::RankProgress> progress(int process) const override;
  std::vector<system::HostUsage> take_usage() override;
  void begin_finish();  // finish() then waits
  int finish(job::HostEvents& events) override;
  bool heard_since(int process, std::chrono::steady_clock::time_point time) const override;

  std::set<pid_t> children() const override;
  void on_child_end(pid_t child, const process::ProcessEnd& end) override;

 private:
  // File descriptors of a link that the epoll knows; -1: none.
  struct Watched {
    int in = -1, errors = -1, process = -1, out = -1;
  };

  // Where a host stands in the tree.
  struct TreePlace {
    size_t link = 0, place = 0;
  };

  AgentLink& link_of(int process) const;
  void watch(size_t link);
  void watch_one(int& known, int wanted, uint32_t events, size_t link);
  std::string unreachable_text() const;
  [[noreturn]] void throw_unreachable() const;
  size_t unknown_hosts() const;
  std::vector<size_t> failed_hosts() const;
  const job::HostLoss& why_not(size_t host) const;
  const std::string& name_of(size_t host) const;

  const process::RaisedFileLimit file_limit_;
  reach::AgentTransport& transport_;
  HostGroupOptions options_;
  std::vector<std::unique_ptr<AgentLink>> links_;
  std::vector<size_t> first_host_;  // of each link
  std::vector<TreePlace> tree_;     // by host
  std::vector<Watched> watched_;
  std::vector<int> host_of_;       // by process; -1: none
  system::FileDescriptor events_;  // epoll over all links and clock_
  system::FileDescriptor clock_;   // timerfd
  bool held_ = false;
};

}  // namespace smp::agent
