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

// The two streams of an agent, and the local process that carries them, if there is one.
struct AgentStreams {
  system::FileDescriptor in, out;          // from the agent, to it
  system::FileDescriptor errors, process;  // of that process: its standard error, its pidfd
  pid_t pid = -1;
};

// An AgentTransport starts an agent (smp-launch --agent) on a host by a command, whose standard
// input and output are joined to the agent's. Only these two streams are used, so no port, name
// service or shared folder is needed. One thread.
class AgentTransport {
 public:
  virtual ~AgentTransport() = default;

  virtual job::Command command_for(const hosts::HostSpec& host) const = 0;

  // The streams of a host's agent: those of the command, or of a connection that exists already.
  // Called once for a host, and again where was_dropped(). Throws StartError, std::system_error.
  virtual AgentStreams open(const hosts::HostSpec& host);

  // Why no agent answered, in words for the user. `end` is how the command ended, `errors` its
  // standard error.
  virtual std::string why_not_reached(const process::ProcessEnd& end,
                                      const std::string& errors) const;

  // Whether the other side dropped the connection because it was busy, so that another try may do.
  virtual bool was_dropped(const process::ProcessEnd&, const std::string& /*errors*/) const {
    return false;
  }

  // One process may carry the streams of all hosts. Its file descriptor is readable when dispatch()
  // has something to read; -1: there is no such process.
  virtual int event_fd() const { return -1; }
  virtual void dispatch() {}
  // Why that process has ended, in words for the user; empty while it runs.
  virtual std::string why_command_ended() const { return ""; }
  // What that process has said about a host whose channel has ended; empty: nothing.
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

// Uses the connections of agents that have joined a rendezvous, by the names of their hosts. A host
// without a connection gets an agent on this machine.
std::unique_ptr<AgentTransport> joined_agents_transport(
    std::map<std::string, system::FileDescriptor> channels, const std::string& agent);

}  // namespace smp::reach
