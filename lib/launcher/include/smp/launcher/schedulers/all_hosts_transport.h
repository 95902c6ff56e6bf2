#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "smp/launcher/agent/host_group.h"
#include "smp/launcher/process/file_limit.h"
#include "smp/launcher/reach/agent_transport.h"
#include "smp/launcher/reach/rendezvous.h"

namespace smp::schedulers {

// The environment variable of the key. The command passes it on, and no command line shows it.
inline constexpr const char* kRendezvousKey = "SMP_MEETING_KEY";

struct AllHostsOptions {
  std::string arguments;  // --mpirun-args
  std::string agent;      // smp-launch on the hosts
  std::string at;         // an address and a port of this host; empty: of its own choice
  std::chrono::milliseconds time{30'000};  // for all agents to come
  std::set<int> ending_signals;            // USR1, USR2: where they end the waiting too
};

// Starts the agents of all hosts by one command, srun or mpirun. The agents connect back to this
// process and prove that they know a key, which the command hands them in their environment. One
// thread.
class AllHostsTransport : public reach::AgentTransport {
 public:
  ~AllHostsTransport() override;

  // Starts the program and waits for the agents; a number as Rendezvous::gather() does. Throws
  // StartError, and what are_missing() throws.
  std::optional<int> gather(int control_fd);

  reach::AgentStreams open(const hosts::HostSpec& host) override;
  int event_fd() const override { return events_.number(); }
  void dispatch() override;
  std::string why_command_ended() const override;

 protected:
  static constexpr size_t kListedHosts = 20;  // in one message

  AllHostsTransport(std::string program, std::vector<hosts::HostSpec> hosts,
                    AllHostsOptions options, reach::Rendezvous rendezvous);

  // Called when the agents of these hosts have not come: the time `is_over`, the program
  // has_ended(), or it has reported a failure. If this returns, the other hosts can be opened.
  virtual void are_missing(const std::vector<std::string>& hosts, bool is_over) = 0;
  // The hosts whose agents will not come, or have ended, by a line of the program.
  virtual std::set<std::string> failed_by(const std::string& /*line*/) const { return {}; }

  const std::vector<hosts::HostSpec>& hosts() const { return hosts_; }
  const AllHostsOptions& options() const { return options_; }
  const std::string& key() const { return rendezvous_.key(); }
  const reach::Rendezvous& rendezvous() const { return rendezvous_; }
  bool has_ended() const { return end_.has_value(); }
  std::set<std::string> failed_hosts() const;  // by all that it said
  // What the program said; only the lines about a host, where there are some.
  std::string words(const std::string& host = "") const;
  std::string lines_about(const std::string& host) const;  // these alone; empty: all

 private:
  bool goes_on();
  std::vector<std::string> missing() const;
  bool ends_in_time();
  void watch();

  const process::RaisedFileLimit file_limit_;
  const std::string program_;
  const std::vector<hosts::HostSpec> hosts_;
  const AllHostsOptions options_;
  reach::Rendezvous rendezvous_;
  reach::AgentStreams streams_;
  system::FileDescriptor events_;  // epoll over its streams and its end
  // When those that have not come are given up, since it says of each that it has failed.
  std::optional<std::chrono::steady_clock::time_point> give_up_at_;
  bool has_gathered_ = false;
  std::string said_;                        // by it, the last of it
  std::optional<process::ProcessEnd> end_;  // of one that the destructor waits for
  std::map<std::string, system::FileDescriptor> channels_;
};

std::string make_rendezvous_key();

// The key that the program has handed to this agent, wiped from where /proc/PID/environ shows it.
std::optional<std::string> take_rendezvous_key();

}  // namespace smp::schedulers
