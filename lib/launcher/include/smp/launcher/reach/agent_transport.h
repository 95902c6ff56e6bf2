#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "smp/launcher/hosts/host_list.h"
#include "smp/launcher/job/host.h"
#include "smp/plan/system/file_descriptor.h"

namespace smp::reach {

// Two streams that lead to an agent, and the process that they lead through, if there is one.
struct AgentStreams {
  system::FileDescriptor in, out;          // from the agent, to it
  system::FileDescriptor errors, process;  // of that process: its standard error, its pidfd
  pid_t pid = -1;
};

// A AgentTransport is how smp-launch reaches a host: a command that starts an agent there
// (smp-launch
// --agent), with its standard input and output joined to the agent's. Nothing else goes over it
// than these two streams, so it needs no port, no name service and no shared folder. One thread.
class AgentTransport {
 public:
  virtual ~AgentTransport() = default;

  virtual job::Command command_for(const hosts::HostSpec& host) const = 0;

  // The line to a host's agent: that of the command, or one that is there already. Once a host, and
  // again where was_dropped().
  // Throws StartError, std::system_error.
  virtual AgentStreams open(const hosts::HostSpec& host);

  // Why no agent spoke, in words for the user, from how the command ended and what it wrote to its
  // standard error.
  virtual std::string why_not_reached(const process::ProcessEnd& end,
                                      const std::string& errors) const;

  // Whether the other side had no time for the connection just then, so that another try may do.
  virtual bool was_dropped(const process::ProcessEnd&, const std::string& /*errors*/) const {
    return false;
  }

  // One process may lead to all hosts. Readable when dispatch() has something to read from it; -1:
  // there is none.
  virtual int event_fd() const { return -1; }
  virtual void dispatch() {}
  // Why it leads nowhere any more, in words for the user; empty while it runs.
  virtual std::string why_command_ended() const { return ""; }
  // What that process has said of a host whose channel has ended; empty: nothing.
  virtual std::string words_about(const hosts::HostSpec&) const { return ""; }
};

// How the remote hosts are reached: --via and what belongs to it.
struct AgentTransportOptions {
  std::string via;            // ssh, srun, mpirun, local, exec:COMMAND
  std::string ssh_arguments;  // --ssh-args
  std::string agent;          // smp-launch on the hosts
};

// `ssh`     the ssh of this system, with the user's own configuration, agents and keys
// `local`   agents on this machine, whatever the hosts are called
// `exec:C`  /bin/sh runs C, which finds the host's name, user and port in SMP_HOST, SMP_HOST_USER,
//           SMP_HOST_PORT and the agent's program in SMP_AGENT
// Throws ConfigError for another one; mpirun and srun reach all hosts at once
// (AllHostsTransport).
std::unique_ptr<AgentTransport> make_agent_transport(const AgentTransportOptions& options);

// Lines to agents that have come by themselves, by the names of their hosts; hosts without one get
// an agent on this machine.
std::unique_ptr<AgentTransport> joined_agents_transport(
    std::map<std::string, system::FileDescriptor> channels, const std::string& agent);

}  // namespace smp::reach
